"""A classifier of images: resnet50 of torchvision, or a ViT of timm, with SGD and a schedule."""

import sys

import own
import torch

if sys.argv[1] == "resnet":
    import torchvision

    model = torchvision.models.resnet50(num_classes=100) if own.GPU else torchvision.models.resnet18(num_classes=10)
else:
    import timm

    model = timm.create_model("vit_base_patch16_224" if own.GPU else "vit_tiny_patch16_224", num_classes=10)
model = model.to(own.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
rows = own.size(64, 1)
images = torch.randn(rows, 3, 224, 224, device=own.DEVICE)
labels = torch.randint(10, (rows,), device=own.DEVICE)
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    schedule.step()
    own.step()
