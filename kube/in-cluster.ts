import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ClusterAccessError } from './errors.ts'
import { tokenFile } from './token-file.ts'
import type { ClusterAccess } from './types.ts'

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'

export interface InClusterOptions {
  /** The values of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which the kubelet sets in every container. */
  host: string
  port: string
  /** Default `/var/run/secrets/kubernetes.io/serviceaccount`. */
  directory?: string | undefined
  now: () => number
}

/** Returns the access to the API server of the cluster in which this pod runs, as the pod's service account. */
export async function loadInCluster(options: InClusterOptions): Promise<ClusterAccess> {
  const { host, port, directory = SERVICE_ACCOUNT, now } = options
  const read = (name: string): Promise<string> => readMounted(join(directory, name))
  const token = tokenFile(join(directory, 'token'), now)
  const [ca, namespace] = await Promise.all([read('ca.crt'), read('namespace')])
  await token()
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca,
    namespace: namespace.trim(),
    token,
    origin: `the service account in ${directory}`,
  }
}

async function readMounted(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new ClusterAccessError(
      `${path} cannot be read (${(cause as Error).message}): inside a pod it is mounted unless automountServiceAccountToken is false; outside of one use a kubeconfig`,
      { cause },
    )
  }
}
