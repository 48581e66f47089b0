"""The first part of the graph: 8-bit images of any size -> pixels of the model's size, as Pillow makes them.

Pillow resizes in two passes and rounds to 8 bits after each. The first runs along rows, or along columns where more
rows are lost than twice the columns (from Pillow 13 on). A pass is a product with a matrix of weights: for new pixel i,
old pixel j, an old side L and f the filter,

    w_ij = f(t) / sum_j f(t),   t = (j + 1/2 - c_i) / max(scale, 1),   c_i = begin + (i + shift + 1/2) scale

`begin` is where the cut-out square begins, `shift` what is cut off after resizing, and scale how many old pixels a new
one has. Between the bars of a letterbox, `shift` is less than nothing. Weights are rounded to integers over 2^22, as
Pillow's are, so that float64 holds every sum exactly. Images that have the model's size already pass unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.backbones.preparation import GREY, Preparation
from dsui.errors import DsuiError
from dsui.export.resize_filters import FILTERS

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET = 18
IR_VERSION = 10
"""What ONNX Runtime 1.18 reads."""
IMAGES, PIXELS = "images", "pixels"
"""The input [N, H, W, C] in 8 bits, and what the rest of the graph takes, [N, C, size, size] in float32."""

MARGIN = """
        {p}spare = Sub ({p}resized, target)
        {p}down = Div ({p}spare, int_two)
        {p}odd = Mod ({p}spare, int_two)
        {p}last = Mod ({p}down, int_two)
        {p}half_up = Mul ({p}odd, {p}last)
        {p}up = Mul ({p}half_up, rounds_to_even)
        {p}shift = Add ({p}down, {p}up)"""
"""What is cut off after resizing; half a spare pixel is rounded down or to the even number."""

CUTS = {
    "square": """
        {p}resized = Identity (target)
        {p}span = Identity (shorter)
        {p}spare = Sub ({p}side, shorter)
        {p}half_spare = Div ({p}spare, int_two)
        {p}begin = Cast <to = 11> ({p}half_spare)
        {p}shift = Identity (int_zero)""",
    "centre": """
        {p}resized = Identity (target)
        {p}span = Identity (shorter)
        {p}spare = Sub ({p}side, shorter)
        {p}spare_wide = Cast <to = 11> ({p}spare)
        {p}half_spare = Mul ({p}spare_wide, half)
        {p}whole_begin = Floor ({p}half_spare)
        {p}is_cut_alone = Equal (shorter, target)
        {p}begin = Where ({p}is_cut_alone, {p}whole_begin, {p}half_spare)
        {p}shift = Identity (int_zero)""",
    "letterbox": """
        {p}side_wide = Cast <to = 11> ({p}side)
        {p}times = Mul ({p}side_wide, target_wide)
        {p}exact = Div ({p}times, longer_wide)
        {p}rounded = Round ({p}exact)
        {p}most = Max ({p}rounded, one)
        {p}resized = Cast <to = 7> ({p}most)
        {p}span = Identity ({p}side)
        {p}begin = Identity (zero)
        {p}bars = Sub (target, {p}resized)
        {p}bar = Div ({p}bars, int_two)
        {p}shift = Neg ({p}bar)""",
    "squash": """
        {p}resized = Identity (edge)
        {p}span = Identity ({p}side)
        {p}begin = Identity (zero)"""
    + MARGIN,
    "crop": """
        {p}scaled = Mul ({p}side, edge)
        {p}resized = Div ({p}scaled, shorter)
        {p}span = Identity ({p}side)
        {p}begin = Identity (zero)"""
    + MARGIN,
}
"""What is cut out of a side, and to what it is resized. Before it, `shift` puts a bar where it is negative."""

PLACE = """
        {p}shift_wide = Cast <to = 11> ({p}shift)
        {p}place = Add (new, {p}shift_wide)"""
PLACE_BETWEEN_BARS = """
        {p}shift_wide = Cast <to = 11> ({p}shift)
        {p}anywhere = Add (new, {p}shift_wide)
        {p}end = Sub ({p}most, one)
        {p}at_least = Max ({p}anywhere, zero)
        {p}place = Min ({p}at_least, {p}end)
        {p}within = Equal ({p}anywhere, {p}place)"""
"""A place on a bar gets what is nearest to it, so that weights are never nothing; BARS paints over it."""

WEIGHTS = """
        {p}span_wide = Cast <to = 11> ({p}span)
        {p}resized_wide = Cast <to = 11> ({p}resized)
        {p}scale = Div ({p}span_wide, {p}resized_wide)
        {p}middle = Add ({p}place, half)
        {p}scaled_middle = Mul ({p}middle, {p}scale)
        {p}centre = Add ({p}scaled_middle, {p}begin)
        {p}side_0 = Squeeze ({p}side)
        {p}count = Range (nothing, {p}side_0, step)
        {p}old = Cast <to = 11> ({p}count)
        {p}old_middle = Add ({p}old, half)
        {p}distance = Sub ({p}old_middle, {p}centre)
        {p}width = Max ({p}scale, one)
        {p}t = Div ({p}distance, {p}width)"""

NORMALISED = """
        {p}sum = ReduceSum ({p}weight, last_axis)
        {p}share = Div ({p}weight, {p}sum)
        {p}fine = Mul ({p}share, units)
        {p}units = Round ({p}fine)
        {p}matrix = Div ({p}units, units)"""

LONGER = """
        longer = Max (row_side, column_side)
        longer_wide = Cast <to = 11> (longer)
        target_wide = Cast <to = 11> (target)"""
NO_BARS = """
        finished = Identity (whole)"""
BARS = """
        column_within_across = Transpose <perm = [1, 0]> (column_within)
        within = And (row_within, column_within_across)
        finished = Where (within, whole, grey)"""

GRAPH = """
<ir_version: {ir}, opset_import: ["" : {opset}]>
prepare (uint8[N, H, W, {channels}] images) => (float[N, {channels}, {size}, {size}] pixels)
<int64[1] target = {{{size}}}>
{{
    side_of_rows = Shape <start = 1, end = 2> (images)
    side_of_columns = Shape <start = 2, end = 3> (images)
    rows_fit = Equal (side_of_rows, target)
    columns_fit = Equal (side_of_columns, target)
    both_fit = And (rows_fit, columns_fit)
    fits = Squeeze (both_fit)
    upright = Transpose <perm = [0, 3, 1, 2]> (images)
    values = Cast <to = 1> (upright)
    pixels = If (fits) <
      then_branch = as_it_is () => (float[N, {channels}, {size}, {size}] unchanged) {{
        unchanged = Identity (values)
      }},
      else_branch = resized () => (float[N, {channels}, {size}, {size}] rounded)
      <int64[1] edge = {{{edge}}}, int64[1] rounds_to_even = {{{even}}},
       int64[1] int_zero = {{0}}, int64[1] int_two = {{2}}, int64[1] last_axis = {{1}},
       int64 nothing = {{0}}, int64 step = {{1}}, int64 target_0 = {{{size}}}, int64[1] column = {{1}},
       double zero = {{0.0}}, double half = {{0.5}}, double minus_half = {{-0.5}}, double one = {{1.0}},
       double two = {{2.0}}, double three = {{3.0}}, double four = {{4.0}}, double three_halves = {{1.5}},
       double five_halves = {{2.5}}, double pi = {{3.141592653589793}}, double tiny = {{1e-9}},
       double hamming_mean = {{0.54}}, double hamming_wave = {{0.46}},
       double units = {{4194304.0}}, double white = {{255.0}}, double grey = {{{grey}.0}}> {{
        new_count = Range (nothing, target_0, step)
        new_row = Cast <to = 11> (new_count)
        new = Unsqueeze (new_row, column)
        row_side = Identity (side_of_rows)
        column_side = Identity (side_of_columns)
        shorter = Min (row_side, column_side){longer}
{rows}
{columns}
        across = Transpose <perm = [1, 0]> (column_matrix)
        exact = Cast <to = 11> (upright)
        rows_lost = Sub (row_side, row_resized)
        columns_lost = Sub (column_side, column_resized)
        columns_lost_at_least = Max (columns_lost, int_zero)
        twice = Mul (columns_lost_at_least, int_two)
        is_tall = Greater (rows_lost, twice)
        columns_first = Squeeze (is_tall)
        whole = If (columns_first) <
          then_branch = along_columns_first () => (double[N, {channels}, {size}, {size}] by_columns) {{
            short = MatMul (row_matrix, exact)
            short_half = Add (short, half)
            short_floor = Floor (short_half)
            low = Clip (short_floor, zero, white)
            low_across = MatMul (low, across)
            low_half = Add (low_across, half)
            low_floor = Floor (low_half)
            by_columns = Clip (low_floor, zero, white)
          }},
          else_branch = along_rows_first () => (double[N, {channels}, {size}, {size}] by_rows) {{
            wide = MatMul (exact, across)
            wide_half = Add (wide, half)
            wide_floor = Floor (wide_half)
            narrow = Clip (wide_floor, zero, white)
            tall = MatMul (row_matrix, narrow)
            tall_half = Add (tall, half)
            tall_floor = Floor (tall_half)
            by_rows = Clip (tall_floor, zero, white)
          }}
        >{bars}
        rounded = Cast <to = 1> (finished)
      }}
    >
}}
"""


def preparation_graph(channels: int, size: int, preparation: Preparation | None) -> ModelProto:
    """uint8 [N, H, W, channels] -> float32 [N, channels, size, size] with whole values from 0 to 255.

    As `dsui.data.decode.prepared` does it with a Pillow image.
    """
    from onnx import parser

    cut = "square" if preparation is None else preparation.fit
    chosen = "bilinear" if preparation is None else preparation.interpolation
    if chosen not in FILTERS:
        raise DsuiError(
            f"the run's images are resized by Pillow's filter {chosen}, which exported files do not have; train with "
            f"one of {', '.join(FILTERS)}, or predict with dsui predict."
        )
    has_bars = cut == "letterbox"
    side = CUTS[cut] + (PLACE_BETWEEN_BARS if has_bars else PLACE) + WEIGHTS + FILTERS[chosen] + NORMALISED
    model = parser.parse_model(
        GRAPH.format(
            ir=IR_VERSION,
            opset=OPSET,
            channels=channels,
            size=size,
            edge=size if preparation is None else preparation.edge,
            even=int(preparation is None or not preparation.rounds_down),
            rows=side.format(p="row_"),
            columns=side.format(p="column_"),
            longer=LONGER if has_bars else "",
            bars=BARS if has_bars else NO_BARS,
            grey=GREY,
        )
    )
    _drop_unused(model.graph)
    return model


def _drop_unused(graph: GraphProto) -> set[str]:
    """Remove constants that only other filters or cuts need, of which ONNX Runtime would warn; gives the names used."""
    used = {name for node in graph.node for name in node.input}
    for node in graph.node:
        for attribute in node.attribute:
            used |= _drop_unused(attribute.g) if attribute.HasField("g") else set()
    kept = [each for each in graph.initializer if each.name in used]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)
    return used
