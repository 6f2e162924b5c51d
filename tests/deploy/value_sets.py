"""Values that the chart is rendered with: none, everything switched on, several servers, and little."""

EVERYTHING = {
    "settings": {
        "upstream": {"url": "https://vllm.models:8443"},
        "server": {"port": 9000, "drain_seconds": 300},
        "queue": {"wait_seconds": 20, "requests": 64},
        "images": {"max_bytes": 10_000_000, "remote": {"allow_networks": ["10.20.0.0/16"], "allow_ports": [443]}},
        "pressure": {"shrink": {"enter": 2.5, "leave": 1, "preset": "ocr"}},
        "history": {"marker": "[an image: left out]\n"},
    },
    "secret": {"name": "vllm-key", "upstreamKey": "api-key", "keys": "keys.yaml"},
    "image": {"repository": "registry.example.com/vlm-gateway", "tag": "1.2.3"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "podLabels": {"team": "vision"},
    "podAnnotations": {"note": "yes"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "cpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": "release"}},
        }
    ],
    "priorityClassName": "high",
    "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "serviceAccount": {"annotations": {"note": "yes"}},
    "service": {"type": "LoadBalancer", "port": 80, "annotations": {"note": "yes"}},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "networkPolicy": {
        "enabled": True,
        "ingressFrom": [{"namespaceSelector": {}}],
        "upstreamTo": [{"podSelector": {"matchLabels": {"app": "vllm"}}}],
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 3128}]}],
    },
    "httpRoute": {
        "enabled": True,
        "parentRefs": [{"name": "public", "namespace": "gateways"}],
        "hostnames": ["vlm.example.com"],
        "annotations": {"note": "yes"},
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"folder": "vLLM"}},
    "scaledObject": {"enabled": True, "target": {"name": "vllm"}},
}
SEVERAL = {
    "settings": {
        "upstreams": [
            {"name": "a", "url": "http://vllm-0.vllm:8000", "api_key_file": "/run/secrets/vlm-gateway/a"},
            {"name": "b", "url": "http://vllm-1.vllm"},
        ],
        "images": {"remote": {"policy": "refuse"}},
    },
    "secret": {"name": "vllm-keys"},
    "networkPolicy": {"enabled": True},
}
SMALL = {
    "settings": {"mode": "shadow"},
    "fullnameOverride": "gw",
    "replicas": 1,
    "serviceAccount": {"create": False},
    "scaledObject": {
        "enabled": True,
        "target": {"kind": "Deployment", "name": "vllm"},
        "matchers": 'cluster="a"',
        "threshold": "0.5",
    },
}
VALUE_SETS = {"defaults": {}, "everything": EVERYTHING, "several": SEVERAL, "small": SMALL}
