import { homedir } from 'node:os'
import type { Config } from '#host/config'
import { version } from '#host/version'
import {
  createKubeClient,
  type KubeClient,
  kubeConfigPaths,
  loadInCluster,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
} from '#kube'

const NAMESPACES = { group: '', version: 'v1', resource: 'namespaces' }

/** The API server of the kubeconfig; in a pod that has none, of the pod's own cluster. */
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

/** Names the cluster in events: the UID of kube-system, which every cluster has and which cannot be deleted. */
export async function clusterId(kube: KubeClient): Promise<string> {
  const { metadata } = await kube.get(resourcePath(NAMESPACES, undefined, 'kube-system'))
  return metadata.uid ?? ''
}
