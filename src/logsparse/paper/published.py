"""R0.5 and R0.9 that the paper reports in tables 1 to 4, by case and model."""

from __future__ import annotations

Scores = tuple[float, float | None]

# Table 1. Everywhere, `paper` is the paper's own model and `deepar-paper` its DeepAR.
MAIN: dict[str, dict[str, Scores]] = {
    "electricity-c, 1 day x 7": {
        "arima": (0.154, 0.102),
        "ets": (0.101, 0.077),
        "trmf": (0.084, None),
        "deepar-paper": (0.075, 0.040),
        "deepstate": (0.083, 0.056),
        "paper": (0.059, 0.034),
    },
    "electricity-c, 7 days": {
        "arima": (0.283, 0.109),
        "ets": (0.121, 0.101),
        "trmf": (0.087, None),
        "deepar-paper": (0.082, 0.053),
        "deepstate": (0.085, 0.052),
        "paper": (0.070, 0.044),
    },
    "traffic-c, 1 day x 7": {
        "arima": (0.223, 0.137),
        "ets": (0.236, 0.148),
        "trmf": (0.186, None),
        "deepar-paper": (0.161, 0.099),
        "deepstate": (0.167, 0.113),
        "paper": (0.122, 0.081),
    },
    "traffic-c, 7 days": {
        "arima": (0.492, 0.280),
        "ets": (0.509, 0.529),
        "trmf": (0.202, None),
        "deepar-paper": (0.179, 0.105),
        "deepstate": (0.168, 0.114),
        "paper": (0.139, 0.094),
    },
}

# Table 2: the size of the convolution's kernel.
KERNELS: dict[str, dict[str, Scores]] = {
    "electricity-c, 1 day x 7": {
        "k=1": (0.060, 0.030),
        "k=2": (0.058, 0.030),
        "k=3": (0.057, 0.031),
        "k=6": (0.057, 0.031),
        "k=9": (0.059, 0.034),
    },
    "traffic-c, 1 day x 7": {
        "k=1": (0.134, 0.089),
        "k=2": (0.124, 0.085),
        "k=3": (0.123, 0.083),
        "k=6": (0.123, 0.083),
        "k=9": (0.122, 0.081),
    },
}

# Table 3: sparse against full attention, of the same memory and of the same length.
SPARSE: dict[str, dict[str, Scores]] = {
    "electricity-f, 1 day x 7": {
        "full-memory": (0.083, 0.051),
        "full-length": (0.082, 0.047),
        "sparse": (0.084, 0.047),
        "full+conv-memory": (0.078, 0.048),
        "full+conv-length": (0.074, 0.042),
        "sparse+conv": (0.079, 0.049),
    },
    "traffic-f, 1 day x 7": {
        "full-memory": (0.161, 0.109),
        "full-length": (0.147, 0.096),
        "sparse": (0.150, 0.098),
        "full+conv-memory": (0.149, 0.102),
        "full+conv-length": (0.139, 0.090),
        "sparse+conv": (0.138, 0.092),
    },
}

# Table 4: various granularities.
GRANULARITIES: dict[str, dict[str, Scores]] = {
    "electricity-f, 1 day x 7": {"trmf": (0.094, None), "deepar-paper": (0.082, 0.063), "paper": (0.074, 0.042)},
    "traffic-f, 1 day x 7": {"trmf": (0.213, None), "deepar-paper": (0.230, 0.150), "paper": (0.139, 0.090)},
    "solar, 1 day x 7": {"trmf": (0.241, None), "deepar-paper": (0.222, 0.093), "paper": (0.210, 0.082)},
    "m4-hourly, 2 days": {"deepar-paper": (0.090, 0.030), "paper": (0.067, 0.025)},
    "wind, 30 days x 7": {"trmf": (0.311, None), "deepar-paper": (0.286, 0.116), "paper": (0.284, 0.108)},
}
