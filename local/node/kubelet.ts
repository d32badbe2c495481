import { mkdir, writeFile } from 'node:fs/promises'
import { CLUSTER_DOMAIN, DNS_SERVICE_IP, NODE_IP, NODE_NAME } from './addresses.ts'
import { createCgroup } from './cgroups.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'
import { resolvConf } from './resolv-conf.ts'

export async function startKubelet(options: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  const { pki, processes, binaries, apiServer } = options
  const certificate = await pki.issue('node', { cn: `system:node:${NODE_NAME}`, o: ['system:nodes'] }, [
    NODE_NAME,
    NODE_IP,
  ])
  const kubeconfig = `${paths.run}/kubelet.kubeconfig`
  await pki.kubeconfig('node', `https://${apiServer.host}:${apiServer.port}`, kubeconfig)
  await mkdir(`${paths.state}/kubelet`, { recursive: true })
  const config = kubeletConfig(paths, port, { ...certificate, caFile: pki.caFile })
  await writeFile(`${paths.run}/kubelet.json`, JSON.stringify(config))
  await createCgroup(paths.id)
  await processes.start({
    name: 'kubelet',
    command: binaries('kubelet'),
    args: [
      `--config=${paths.run}/kubelet.json`,
      `--kubeconfig=${kubeconfig}`,
      `--root-dir=${paths.state}/kubelet`,
      `--hostname-override=${NODE_NAME}`,
      `--node-ip=${NODE_IP}`,
    ],
    stopSignal: 'SIGKILL',
  })
}

interface ServingFiles {
  certFile: string
  keyFile: string
  caFile: string
}

function kubeletConfig(paths: NodePaths, port: number, files: ServingFiles): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    failCgroupV1: false,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/${paths.id}`,
    containerRuntimeEndpoint: `unix://${paths.containerdSocket}`,
    address: NODE_IP,
    port,
    healthzPort: 0,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: files.caFile },
    },
    authorization: { mode: 'Webhook' },
    tlsCertFile: files.certFile,
    tlsPrivateKeyFile: files.keyFile,
    failSwapOn: false,
    // The kubelet must accept pods on a user's disk that is nearly full.
    evictionHard: { 'nodefs.available': '1%', 'imagefs.available': '1%', 'memory.available': '50Mi' },
    imageGCHighThresholdPercent: 100,
    makeIPTablesUtilChains: false,
    volumePluginDir: `${paths.state}/volume-plugins`,
    clusterDomain: CLUSTER_DOMAIN,
    clusterDNS: [DNS_SERVICE_IP],
    resolvConf: resolvConf(paths),
    podLogsDir: paths.podLogs,
    maxPods: 200,
    syncFrequency: '10s',
    serializeImagePulls: false,
    registryPullQPS: 0,
    kubeAPIQPS: 200,
    kubeAPIBurst: 400,
  }
}
