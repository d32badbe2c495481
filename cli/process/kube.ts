import { homedir } from 'node:os'
import {
  createKubeClient,
  type KubeClient,
  kubeConfigPaths,
  loadInCluster,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
} from '#kube'
import type { Config } from './config.ts'
import { version } from './version.ts'

const NAMESPACES = { group: '', version: 'v1', resource: 'namespaces' }

/** Connects to the API server of the kubeconfig; in a pod without one, to the API server of the pod's cluster. */
export async function openKube(config: Config, onRequest?: (request: RequestReport) => void): Promise<KubeClient> {
  const { KUBECONFIG, KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = config
  const access =
    KUBECONFIG === undefined && host !== undefined && port !== undefined
      ? await loadInCluster({ host, port, now: Date.now })
      : await loadKubeConfig({ paths: kubeConfigPaths(KUBECONFIG, homedir()), context: config.context })
  return createKubeClient({
    ...access,
    userAgent: `fairlead/${version} (${process.platform}/${process.arch})`,
    onRequest,
  })
}

/**
 * Returns the UID of kube-system, which identifies the cluster in events: every cluster has this namespace, and it
 * cannot be deleted.
 */
export async function clusterId(kube: KubeClient): Promise<string> {
  const { metadata } = await kube.get(resourcePath(NAMESPACES, undefined, 'kube-system'))
  return metadata.uid ?? ''
}
