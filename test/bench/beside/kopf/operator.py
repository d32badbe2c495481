"""At and Memcached on Kopf: what Fairlead is measured beside. Ends with its standard input."""
import asyncio
import os
import sys
import threading
from datetime import datetime, timezone

import kopf
from kubernetes.aio import client, config

GROUP, VERSION, PLURAL = AT = ('cnat.programming-kubernetes.info', 'v1alpha1', 'ats')
MEMCACHED = ('cache.example.com', 'v1alpha1', 'memcacheds')
ENDED = ('Succeeded', 'Failed')


def end_with_parent():
    sys.stdin.buffer.read()
    os._exit(0)


@kopf.on.startup()
async def connect(memo, settings, **_):
    threading.Thread(target=end_with_parent, daemon=True).start()
    settings.posting.enabled = False
    await config.load_kube_config()
    memo.api = client.ApiClient()
    memo.core = client.CoreV1Api(memo.api)
    memo.apps = client.AppsV1Api(memo.api)
    memo.custom = client.CustomObjectsApi(memo.api)


@kopf.on.cleanup()
async def disconnect(memo, **_):
    await memo.api.close()


async def report(memo, namespace, name, phase):
    await memo.custom.patch_namespaced_custom_object_status(
        GROUP, VERSION, namespace, PLURAL, name, {'status': {'phase': phase}},
        _content_type='application/merge-patch+json')


def is_under_way(status, **_):
    return status.get('phase') != 'DONE'


@kopf.daemon(*AT, when=is_under_way, cancellation_timeout=1)
async def run_at_its_time(spec, status, name, namespace, body, memo, **_):
    def seconds_left():
        return (datetime.fromisoformat(spec['schedule']) - datetime.now(timezone.utc)).total_seconds()

    phase = status.get('phase')
    if seconds_left() > 0:
        if phase != 'PENDING':
            await report(memo, namespace, name, 'PENDING')
        await asyncio.sleep(max(0, seconds_left()))
    if phase != 'RUNNING':
        await report(memo, namespace, name, 'RUNNING')
    pod = {
        'metadata': {'name': f'{name}-pod', 'labels': {'at': name}},
        'spec': {
            'restartPolicy': 'Never',
            'containers': [{'name': 'command', 'image': 'busybox', 'command': spec['command'].split()}],
        },
    }
    kopf.append_owner_reference(pod, owner=body)
    try:
        await memo.core.create_namespaced_pod(namespace, pod)
    except client.ApiException as refused:
        if refused.status != 409:
            raise


@kopf.on.event('v1', 'pods', labels={'at': kopf.PRESENT})
async def pod_changed(event, status, labels, namespace, memo, **_):
    if event['type'] == 'DELETED' or status.get('phase') not in ENDED:
        return
    try:
        await report(memo, namespace, labels['at'], 'DONE')
    except client.ApiException as refused:
        if refused.status != 404:
            raise


@kopf.on.create(*MEMCACHED)
@kopf.on.update(*MEMCACHED)
@kopf.on.resume(*MEMCACHED)
async def size_changed(spec, name, namespace, body, memo, **_):
    try:
        await memo.apps.patch_namespaced_deployment(
            name, namespace, {'spec': {'replicas': spec['size']}}, _content_type='application/merge-patch+json')
        return
    except client.ApiException as refused:
        if refused.status != 404:
            raise
    labels = {'memcached': name}
    containers = [{'name': 'memcached', 'image': spec['image']}]
    deployment = {
        'metadata': {'name': name},
        'spec': {
            'replicas': spec['size'],
            'selector': {'matchLabels': labels},
            'template': {'metadata': {'labels': labels}, 'spec': {'containers': containers}},
        },
    }
    kopf.append_owner_reference(deployment, owner=body)
    await memo.apps.create_namespaced_deployment(namespace, deployment)
