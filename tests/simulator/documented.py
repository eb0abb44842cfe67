"""The documented limits, and where those are enforced that have no check of their own name."""

from pathlib import Path

DOCUMENTED = dict(
    reversed(line.split()) for line in (Path(__file__).parent / "documented.txt").read_text().splitlines() if line[0] != "#"
)
"""How each documented limit is to be enforced: error, runtime, ub or warn."""

ELSEWHERE = {
    "hw.src_dst_same_partition_count": (
        "tensor_copy.shape",
        "tensor_tensor.shape",
        "activation.partition",
        "tensor_reduce.partition",
    ),
    "hw.no_cross_partition_gt_64": ("hw.start_partition.p65_128", "tensor_copy.shape"),
    "hw.tensor.reads_sbuf_writes_psum": ("nc_matmul.operand_buffers", "nc_matmul_mx.buffers"),
    "hw.psum.rw_engines": ("hw.gpsimd.no_psum", "dma_copy.no_psum_dst", "dma_copy.no_psum_src", "register.no_psum"),
    "hw.psum.banks_8x2KiB": ("hw.psum.partition_bytes", "nc_matmul.dst_fits_one_bank"),
    "hw.psum.usable_banks_7_with_pe_transpose_env": ("hw.psum.capacity_enforced",),
    "hw.sbuf.partition_bytes": ("hw.sbuf.usable_partition_bytes", "hw.sbuf.capacity_enforced"),
    "hw.psum_min_align": ("ndarray.psum_bank_start",),
    "psum.tile_fmax_512": ("nc_matmul.moving_free_le_512", "nc_matmul.dst_fits_one_bank"),
    "dtype.jax_unsupported": ("dtype.supported_list",),
    "nc_matmul.perf_mode_enum": ("kernel.enum_members", "kernel.api_name"),
    "nc_matmul.indirect.gen4": ("tensor.indirect_gen4",),
    "nc_transpose.no_accumulate": ("kernel.unexpected_kwargs",),
    "dma_copy.buffers": ("dma_copy.no_psum_dst", "dma_copy.no_psum_src"),
    "dma_copy.dynamic_needs_dge": ("dma_copy.none_static_only", "dma_copy.vector_offset_mode"),
    "dma_copy.scalar_offset_type": ("ap.scalar_offset",),
    "dma_copy.offsets_exclusive": ("ap.offsets_exclusive",),
    "sendrecv.bool_param_removed": ("kernel.unexpected_kwargs",),
    "dma_copy.no_rmw": ("kernel.unexpected_kwargs",),
    "dma_copy.mask_removed": ("kernel.unexpected_kwargs",),
    "dma_transpose.priority_gen4": ("dma_copy.priority_gen4",),
    "aluop.bitvec_int_only": ("tensor_tensor.bitvec_int", "tensor_scalar.bitvec_vector_int", "tensor_reduce.bitvec_int"),
    "aluop.legal_reduction_ops": ("tensor_reduce.op", "tensor_scalar_cumulative.op1", "tensor_tensor_scan.ops"),
    "aluop.not_reduction": ("tensor_reduce.op", "tensor_scalar_cumulative.op1", "tensor_tensor_scan.ops"),
    "aluop.no_arith_shift_right": ("kernel.api_name",),
    "aluop.no_divide_mod": ("nl.divide_unsupported", "nl.mod_fmod_unsupported", "kernel.operator"),
    "aluop.abs_max_min_gen4": ("tensor_tensor.op", "tensor_scalar.op", "nl.abs_max_min_gen4"),
    "aluop.square_relu_gen4": ("tensor_scalar.op", "tensor_scalar_reduce.op0"),
    "aluop.power_gpsimd": ("tensor_tensor.power_no_psum",),
    "memset.no_shape_arg": ("kernel.unexpected_kwargs",),
    "tensor_reduce.data_free": ("hw.sbuf.usable_partition_bytes",),
    "iota.partition": ("hw.partition_dim_le_128", "hw.sbuf.usable_partition_bytes"),
    "rng.shape": ("hw.partition_dim_le_128", "hw.sbuf.usable_partition_bytes"),
    "rand2.shape": ("hw.partition_dim_le_128", "hw.sbuf.usable_partition_bytes"),
    "kernel.args_hbm": ("kernel.output_shared_hbm",),
    "kernel.lnc2_shared_hbm": ("kernel.output_shared_hbm",),
    "lang.no_arange_mgrid": ("kernel.api_name",),
    "lang.dynamic_range_step": ("lang.fori_loop_step",),
    "isa.engine_constants_deprecated": ("kernel.deprecated_name",),
    "lang.ranges_deprecated": ("kernel.deprecated_name",),
    "lang.dynamic_range_deprecated": ("lang.dynamic_frontend",),
    "kernel.removed_entry_points": ("kernel.api_name",),
    "isa.removed_tensor_copy_dynamic": ("kernel.api_name",),
}
"""Documented limits that other rules enforce: the same limit seen from an instruction, an allocation or a call."""

_BY_FORM = "no call can be written that breaks it: "
_LIFTED = "lifted: NKI 0.7 runs the kernel's Python and takes all of it; "

UNCHECKED = {
    "hw.ap.same_pattern_every_partition": _BY_FORM + "a pattern has one free part for all partitions",
    "hw.sbuf_tensor_same_offset_all_partitions": _BY_FORM + "a tensor has one byte offset for all partitions",
    "hw.scalar.one_input_tensor": _BY_FORM + "no instruction of the Scalar Engine has two input tiles",
    "hw.psum.accumulate_only_tensor": _BY_FORM + "only matmuls have an accumulate parameter",
    "hw.psum.accumulation_groups_le_8": _BY_FORM + "a group lives in a bank, and there are 8",
    "nc_transpose.any_dtype": "a permission, not a limit",
    "ndarray.no_block_dim": _BY_FORM + "dimension 0 is the partition dimension, whatever it is meant to be",
    "exponential.engine": _BY_FORM + "it has no engine parameter",
    "activate2.engine": _BY_FORM + "it has no engine parameter",
    "nonzero_with_count.engine": _BY_FORM + "it has no engine parameter",
    "isa.positional_order_changes": _BY_FORM + "the signatures are those of 0.7",
    "kernel.sub_kernel_decorator": _LIFTED + "a kernel may call another one",
    "lang.value_types": _LIFTED + "values are Python's",
    "lang.containers": _LIFTED + "containers are Python's",
    "lang.classes_nkiobject": _LIFTED + "classes are Python's",
    "lang.enum_ops": _LIFTED + "enumerations are Python's",
    "hw.ap.most_instructions_3d_free": "the documents do not say which instructions; hw.ap.free_dims_le_4 is the limit of all",
    "dma_copy.hwdge_example_constraints": "a comment in a test of an older release, not in the reference",
    "tensor_scalar_cumulative.no_reverse_arg": "about the text: the signature has no such parameter",
    "nc_find_index8.mask_text": "about the text: the signature has no such parameter",
    "ndarray.psum_default_buffer_example": "about an example of the documents",
    "nl.logical_boolean_like": "about values: every number is an input, and the result is what the operator gives",
    "nl.where_condition": "about values: every number is an input, and the result is what the operator gives",
    "kernel.instr_count": "the documents have no number",
    "lang.nested_slicing": "superseded: the language guide shows chained slices",
    "tensor_tensor.input_start_partition": "the documents do not say which partitions",
    "kernel.pure": "kernels are run, not reused: there is nothing that could be stale",
}
"""Documented limits that nothing checks, and why."""
