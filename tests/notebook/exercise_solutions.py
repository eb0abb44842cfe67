"""What may stand where the tutorials' exercises have dots, by the name of the kernel."""

from __future__ import annotations

SOLUTIONS: dict[str, str] = {
    "scale_rows": """
        tile = nl.load(x[start:stop])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=nl.load(factors[start:stop]))
        nl.store(out[start:stop], tile)
""",
    "pairs": """
    both = nl.load(x.reshape((rows // 2, 2, columns)))
    total = nl.ndarray((rows // 2, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=both[:, 0, :], data2=both[:, 1, :], op=nl.add)
    nl.store(out, total)
""",
    "pick_on_chip": """
    nisa.tensor_copy(dst=some, src=rows[:, 0:520:4])
""",
    "matmul_wide": """
        total = nl.ndarray((M, columns.stop - columns.start), dtype=nl.float32, buffer=nl.psum)
        for k in range(0, K, nl.tile_size.pmax):
            rows = slice(k, min(k + nl.tile_size.pmax, K))
            nisa.nc_matmul(dst=total, stationary=nl.load(lhsT[rows]), moving=nl.load(rhs[rows, columns]))
        result = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=total)
        nl.store(out[:, columns], result)
""",
    "silu": """
    gate = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=gate, data=tile, op=nl.sigmoid)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=gate, op=nl.multiply)
    nl.store(out, tile)
""",
    "rms": """
    total = nl.ndarray((80, 1), dtype=nl.float32, buffer=nl.sbuf)
    squares = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
    nisa.activation(dst=total, data=total, op=nl.sqrt, scale=1.0 / x.shape[1])
    nl.store(out, total)
""",
    "turn_tall": """
    for start in range(0, 160, nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, 160)
        part = nl.ndarray((64, stop - start), dtype=x.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=part, data=nl.load(x[start:stop]))
        nisa.tensor_copy(dst=turned[:, start:stop], src=part)
""",
    "eight_bits": """
    scale = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
    back = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=back, op=nl.abs, data=tile)
    nisa.tensor_reduce(dst=scale, op=nl.maximum, data=back, axis=1)
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.multiply, operand0=1.0 / 240)
    nisa.reciprocal(dst=inverse, data=scale)
    nisa.tensor_scalar(dst=small, data=tile, op0=nl.multiply, operand0=inverse)
    nisa.tensor_scalar(dst=back, data=small, op0=nl.multiply, operand0=scale)
    nl.store(out, back)
""",
    "add_full_tiles": """
    grid = nl.tiles(x, tile_shape=(128, 128))
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            if not grid[i, j].is_remainder:
                nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(grid[i, j].data), op=nl.add)
""",
    "fused_gated": """
    tile = nl.rms_norm(nl.load(x), nl.broadcast_to(nl.load(gain), (T, D)), axis=1, n=D, epsilon=1e-6)
    turned = []
    for d in range(0, D, 128):
        part = slice(d, min(d + 128, D))
        acc = nl.ndarray((part.stop - d, T), dtype=tile.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=acc, data=tile[:, part])
        turned.append((part, nl.copy(acc)))
    middle = []
    for h in range(0, H, 128):
        rows = slice(h, min(h + 128, H))
        acc, gates = [nl.ndarray((rows.stop - h, T), dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
        for i, (part, piece) in enumerate(turned):
            nisa.nc_matmul(dst=acc, stationary=nl.load(up[part, rows]), moving=piece, accumulate=(i > 0))
            nisa.nc_matmul(dst=gates, stationary=nl.load(gate[part, rows]), moving=piece, accumulate=(i > 0))
        made = nl.ndarray(acc.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=made, op=nl.silu, data=acc)
        nisa.tensor_tensor(dst=made, data1=made, data2=gates, op=nl.multiply)
        middle.append((rows, made))
    acc = nl.ndarray((T, D), dtype=nl.float32, buffer=nl.psum)
    for i, (rows, made) in enumerate(middle):
        nisa.nc_matmul(dst=acc, stationary=made, moving=nl.load(down[rows, :]), accumulate=(i > 0))
    nl.store(out, nl.copy(acc))
""",
    "wide": """
    right = [nl.load(rhs[k:k + 128]) for k in range(0, K, 128)]
    for m in range(0, M, 128):
        left = [nl.load(lhsT[k:k + 128, m:m + 128]) for k in range(0, K, 128)]
        for n in range(0, N, 512):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for stationary, moving in zip(left, right):
                nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving[:, n:n + 512])
            nl.store(out[m:m + 128, n:n + 512], nl.copy(acc, dtype=out.dtype))
""",
    "ragged": """
    positions = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=positions, pattern=[[1, tile.shape[1]]], offset=0, channel_multiplier=0)
    nisa.tensor_scalar(dst=positions, data=positions, op0=nl.less, operand0=ends)
    nisa.tensor_tensor(dst=positions, data1=positions, data2=tile, op=nl.multiply)
    total = nl.ndarray((90, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=positions, axis=1)
    nl.store(out, total)
""",
    "softmax_backward": """
    tile, given = nl.load(shares), nl.load(grad)
    common = nl.sum(nl.multiply(given, tile), axis=1, keepdims=True)
    nl.store(to_scores, nl.multiply(tile, nl.subtract(given, nl.broadcast_to(common, shares.shape))))
""",
    "column_sums": """
    total = nl.ndarray((1, 64), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=ones, moving=rows)
    nisa.tensor_copy(dst=mine, src=total)
    nisa.sendrecv(src=mine, dst=came, send_to_rank=other, recv_from_rank=other, pipe_id=0)
""",
}
"""Each replaces the line of dots."""

FOUR_MISTAKES: list[tuple[str, str]] = [
    ("buffer=nl.hbm", "buffer=nl.shared_hbm"),
    ("buffer=nl.psum", "buffer=nl.sbuf"),
    ("    for i in range(0, 200, 128):\n", "    for i in range(0, 200, 128):\n        n = min(128, 200 - i)\n"),
    ("(128, 48)", "(n, 48)"),
    ("i : i + 128", "i : i + n"),
]
"""What a reader changes in the kernel of the notebook about limits, one diagnosis after the other."""
