"""Pillow's filters f(t) in operations of ONNX, for the weights of `dsui.export.preparation_graph`."""

from __future__ import annotations

FILTERS = {
    "nearest": """
        {p}below = Floor ({p}centre)
        {p}same = Equal ({p}old, {p}below)
        {p}weight = Cast <to = 11> ({p}same)""",
    "box": """
        {p}above = Greater ({p}t, minus_half)
        {p}upto = LessOrEqual ({p}t, half)
        {p}inside = And ({p}above, {p}upto)
        {p}weight = Cast <to = 11> ({p}inside)""",
    "bilinear": """
        {p}size = Abs ({p}t)
        {p}rest = Sub (one, {p}size)
        {p}weight = Max ({p}rest, zero)""",
    "bicubic": """
        {p}size = Abs ({p}t)
        {p}square = Mul ({p}size, {p}size)
        {p}cube = Mul ({p}square, {p}size)
        {p}near1 = Mul ({p}cube, three_halves)
        {p}near2 = Mul ({p}square, five_halves)
        {p}near3 = Sub ({p}near1, {p}near2)
        {p}near = Add ({p}near3, one)
        {p}far1 = Mul ({p}cube, minus_half)
        {p}far2 = Add ({p}far1, {p}near2)
        {p}far3 = Mul ({p}size, four)
        {p}far4 = Sub ({p}far2, {p}far3)
        {p}far = Add ({p}far4, two)
        {p}in2 = Less ({p}size, two)
        {p}outer = Where ({p}in2, {p}far, zero)
        {p}in1 = Less ({p}size, one)
        {p}weight = Where ({p}in1, {p}near, {p}outer)""",
    "hamming": """
        {p}size = Abs ({p}t)
        {p}some = Max ({p}size, tiny)
        {p}angle = Mul ({p}some, pi)
        {p}sine = Sin ({p}angle)
        {p}sinc = Div ({p}sine, {p}angle)
        {p}cosine = Cos ({p}angle)
        {p}wave = Mul ({p}cosine, hamming_wave)
        {p}window = Add ({p}wave, hamming_mean)
        {p}inner = Mul ({p}sinc, {p}window)
        {p}in1 = Less ({p}size, one)
        {p}weight = Where ({p}in1, {p}inner, zero)""",
    "lanczos": """
        {p}size = Abs ({p}t)
        {p}some = Max ({p}size, tiny)
        {p}angle = Mul ({p}some, pi)
        {p}sine = Sin ({p}angle)
        {p}sinc = Div ({p}sine, {p}angle)
        {p}third = Div ({p}angle, three)
        {p}slow = Sin ({p}third)
        {p}window = Div ({p}slow, {p}third)
        {p}inner = Mul ({p}sinc, {p}window)
        {p}in3 = Less ({p}size, three)
        {p}weight = Where ({p}in3, {p}inner, zero)""",
}
"""f(t) by Pillow's names, in float64; `{p}` begins the names of one side's values."""
