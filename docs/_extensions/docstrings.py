r"""Docstrings on the site: the papers' equations, below the first lines of the docstrings that they belong to.

Docstrings stay readable in a terminal: they name an equation, and the site shows it.
"""

from sphinx.application import Sphinx

SOFTMAX = r"\operatorname{softmax}_j"
GAUSSIAN = r"-\sum_p \Bigl(\frac{(v_{ijp} - \mu_{jp})^2}{2\sigma_{jp}^2} + \tfrac12\log\sigma_{jp}^2\Bigr)"

# Full name of an object: its equations, and the page that derives them.
EQUATIONS: dict[str, tuple[list[str], str]] = {
    "torchcaps.squash": ([r"v = \frac{\lVert s\rVert^2}{1+\lVert s\rVert^2}\,\frac{s}{\lVert s\rVert}"], "dynamic"),
    "torchcaps.DenseCapsules": ([r"V_{ijch} = \sum_d W_{ijdh}\, x_{icd} + B_{ijch}"], "design"),
    "torchcaps.ConvCapsules": ([r"V_{ijch} = \sum_d W_{k(i,j)\,dh}\, x_{icd} + B_{k(i,j)\,ch}"], "design"),
    "torchcaps.ClassCapsules": ([r"V_{ijch} = \sum_d W_{jdh}\, x_{icd} + B_{jch}"], "design"),
    "torchcaps.routing.dynamic_routing": (
        [
            rf"c_{{i\cdot}} = {SOFTMAX}(b_{{ij}}), \qquad s_j = \sum_i c_{{ij}} v_{{ij}}",
            r"v_j = \operatorname{squash}(s_j), \qquad b_{ij} \leftarrow b_{ij} + \langle v_{ij}, v_j\rangle",
        ],
        "dynamic",
    ),
    "torchcaps.routing.em_routing": (
        [
            r"r_{ij} = R_{ij}\, a_i, \qquad m_j = \sum_i r_{ij}, \qquad \mu_j = \frac1{m_j}\sum_i r_{ij} v_{ij}",
            r"\sigma_j^2 = \frac1{m_j}\sum_i r_{ij} (v_{ij} - \mu_j)^2",
            r"\text{score}_j = \lambda\Bigl(\beta_a - \sum_p (\beta_v + \log\sigma_{jp})\, m_j\Bigr)",
            rf"R_{{i\cdot}} = {SOFTMAX}\Bigl(\log a_j {GAUSSIAN}\Bigr)",
        ],
        "em",
    ),
    "torchcaps.routing.heinsen_routing": (
        [
            rf"R_{{i\cdot}} = {SOFTMAX}\Bigl(\log f(a_j) {GAUSSIAN}\Bigr)",
            r"D^{use}_{ij} = f(a_i)\, R_{ij}, \qquad D^{ign}_{ij} = f(a_i) - D^{use}_{ij}",
            r"a_j = \sum_i \beta^{use}_{ij} D^{use}_{ij} - \sum_i \beta^{ign}_{ij} D^{ign}_{ij}",
            r"\mu_j = \frac{\sum_i D^{use}_{ij} v_{ij}}{\sum_i D^{use}_{ij} + \epsilon}, \qquad "
            r"\sigma_j^2 = \frac{\sum_i D^{use}_{ij} (v_{ij} - \mu_j)^2}{\sum_i D^{use}_{ij} + \epsilon} + \epsilon",
        ],
        "heinsen",
    ),
    "torchcaps.routing.inverted_attention_step": (
        [
            rf"r_{{i\cdot}} = {SOFTMAX}\bigl(\text{{scale}} \cdot \langle p_j, v_{{ij}}\rangle\bigr)",
            r"p_j' = \operatorname{LayerNorm}\Bigl(\sum_i r_{ij} v_{ij}\Bigr)",
        ],
        "inverted-attention",
    ),
    "torchcaps.routing.active_inverted_attention_step": (
        [
            r"u_{ij} = r_{ij}\, a_i, \qquad m_j = \sum_i u_{ij}",
            r"\text{score}_j = \lambda\Bigl(\beta_a - \sum_p (\beta_v + \log\sigma_{jp})\, m_j\Bigr)",
        ],
        "inverted-attention",
    ),
    "torchcaps.routing.fm_agreement": (
        [
            r"s_j = \sum_{i<k} v_{ij} \odot v_{kj} = "
            r"\tfrac12\Bigl(\bigl(\textstyle\sum_i v_{ij}\bigr)^2 - \sum_i v_{ij}^2\Bigr)",
            r"\text{score}_j = \sum_p s_{jp}, \qquad \text{pose}_j = s_j / \lVert s_j\rVert",
        ],
        "fm",
    ),
    "torchcaps.routing.self_attention_routing": (
        [
            rf"c_{{i\cdot}} = {SOFTMAX}\Bigl(\langle v_{{ij}}, \textstyle\sum_k v_{{kj}}\rangle / \sqrt p\Bigr)",
            r"s_j = \sum_i (c_{ij} + b_{ij})\, v_{ij}",
            r"\text{pose}_j = \bigl(1 - e^{-\lVert s_j\rVert}\bigr) s_j / \lVert s_j\rVert, \qquad "
            r"\text{score}_j = \log\bigl(e^{\lVert s_j\rVert} - 1\bigr)",
        ],
        "self-attention",
    ),
    "torchcaps.routing.fixed_point_routing": (
        [
            r"s_j = \sum_i c_{ij}\, v_{ij}, \qquad "
            rf"c_{{i\cdot}} = {SOFTMAX}\bigl(\beta\,\langle v_{{ij}}, \operatorname{{squash}}(s_j)\rangle\bigr)",
            r"\text{pose}_j = \operatorname{squash}(s_j), \qquad \text{score}_j = \log\lVert s_j\rVert^2",
        ],
        "fixed-point",
    ),
    "torchcaps.routing.self_routing": (
        [
            r"c_{i\cdot} = \operatorname{softmax}(b_{i\cdot}), \qquad a_j = \frac{\sum_i a_i c_{ij}}{\sum_i a_i}",
            r"\text{pose}_j = \frac{\sum_i a_i c_{ij} v_{ij}}{\sum_i a_i c_{ij}}",
        ],
        "self-routing",
    ),
    "torchcaps.routing.vb_routing": (
        [
            r"m_j = \frac{\kappa_0 m_0 + \sum_i r_{ij} v_{ij}}{\kappa_0 + n_j}, \qquad"
            r" \Phi_j = \Psi_0 + \sum_i r_{ij} (v_{ij} - m_j)^2 + \kappa_0 (m_j - m_0)^2",
            r"A_j = \beta_a - \beta_u - \pi_j \bigl(\tfrac D2 \ln 2\pi e - \tfrac12 L_j\bigr)",
        ],
        "vb",
    ),
    "torchcaps.routing.uniform_routing": (
        [r"s_j = \frac1J \sum_i v_{ij}, \qquad \text{pose}_j = \operatorname{squash}(s_j)"],
        "uniform",
    ),
    "torchcaps.losses.MarginLoss": (
        [
            r"L = \sum_k T_k \max(0,\, m^+ - a_k)^2 + \lambda\,(1 - T_k) \max(0,\, a_k - m^-)^2",
        ],
        "dynamic",
    ),
    "torchcaps.losses.SpreadLoss": ([r"L = \sum_{k \ne t} \max\bigl(0,\, m - (a_t - a_k)\bigr)^2"], "em"),
}


def show_equations(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    if name not in EQUATIONS or what not in ("function", "class"):
        return
    equations, page = EQUATIONS[name]
    shown = [".. math::", "", *(f"   {line} \\\\" for line in equations[:-1]), f"   {equations[-1]}", ""]
    end = lines.index("") if "" in lines else len(lines)
    lines[end:end] = ["", *shown, f"Derivation: :doc:`/{page}`.", ""]


COLON, NO_COLON = ": ", "\u2236 "


def keep_colons(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Napoleon would read "What it is: more about it" below an attribute as a type and its description."""
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(COLON, NO_COLON) for line in lines]


def restore_colons(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    lines[:] = [line.replace(NO_COLON, COLON) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    for hook, priority in ((show_equations, 400), (keep_colons, 400), (restore_colons, 600)):  # napoleon has 500
        app.connect("autodoc-process-docstring", hook, priority=priority)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
