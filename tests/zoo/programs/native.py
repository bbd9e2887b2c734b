"""Compiles a C++ program of this folder against the libraries of PyTorch's process, and becomes it."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import torch
from torch.utils import cpp_extension

torch.mm(torch.zeros(8, 8, device="cuda"), torch.zeros(8, 8, device="cuda"))
maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
loaded = {line.split()[-1] for line in maps if "/lib" in line}
wanted = ["torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda", "cudart", "cublas"]
libraries = sorted(path for path in loaded if any(f"/lib{name}.so" in path for name in wanted))
source = pathlib.Path(__file__).with_name(sys.argv[1])
program = pathlib.Path(os.environ["ZOO_LOG"]).with_name(source.stem)
includes = [f"-I{folder}" for folder in [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]]
links = [word for path in libraries for word in (path, f"-Wl,-rpath,{os.path.dirname(path)}")]
subprocess.run(["g++", "-O1", "-std=c++17", *includes, "-o", program, source, "-Wl,--no-as-needed", *links], check=True)
os.execv(program, [program])
