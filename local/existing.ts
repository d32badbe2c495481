import { connect } from 'node:net'
import { homedir } from 'node:os'
import { createKubeClient, kubeConfigPaths, loadKubeConfig } from '#kube'

/** Servers that the user names in the environment. They are used instead of local ones. */
export interface ExistingServers {
  /** KUBECONFIG as it is set: one file, or several separated by colons. */
  kubeconfig?: string
  natsUrl?: string
}

const TIMEOUT_MS = 5000

/** NATS_URL names a server that does not answer. */
class NatsUnreachableError extends Error {
  override readonly name = 'NatsUnreachableError'
}

/**
 * Returns the servers that KUBECONFIG and NATS_URL name, after checking that they answer. An error names the variable,
 * its value and the fix.
 */
export async function existingServers(env: Record<string, string | undefined>): Promise<ExistingServers> {
  const [kubeconfig, natsUrl] = [env['KUBECONFIG'], env['NATS_URL']]
  await Promise.all([
    kubeconfig ? usable('KUBECONFIG', kubeconfig, kubernetesAnswers(kubeconfig)) : undefined,
    natsUrl ? usable('NATS_URL', natsUrl, natsAnswers(natsUrl)) : undefined,
  ])
  return { ...(kubeconfig ? { kubeconfig } : {}), ...(natsUrl ? { natsUrl } : {}) }
}

async function usable(variable: string, value: string, answers: Promise<void>): Promise<void> {
  try {
    await answers
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.trim() : String(cause)
    const wayOut = `Unset ${variable} to have a server of its own started on this machine instead.`
    throw new Error(`${variable}=${value} cannot be used: ${reason.replace(/\.$/, '')}. ${wayOut}`, { cause })
  }
}

async function kubernetesAnswers(kubeconfig: string): Promise<void> {
  const access = await loadKubeConfig({ paths: kubeConfigPaths(kubeconfig, homedir()) })
  await using kube = createKubeClient({ ...access, userAgent: 'fairlead-local', timeoutMs: TIMEOUT_MS })
  await kube.request({ method: 'GET', path: '/version' })
}

/** One reachable server is enough, as for a client. */
async function natsAnswers(urls: string): Promise<void> {
  const attempts = urls.split(',').map((url) => portAnswers(new URL(url.includes('://') ? url : `nats://${url}`)))
  await Promise.any(attempts).catch((error: AggregateError) => {
    const [cause] = error.errors as Error[]
    throw new NatsUnreachableError(cause?.message, { cause })
  })
}

function portAnswers({ hostname, port }: URL): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port || 4222), timeout: TIMEOUT_MS })
    const end = (settle: () => void): void => {
      socket.destroy()
      settle()
    }
    socket.once('connect', () => end(resolve))
    socket.once('error', (error) => end(() => reject(error)))
    socket.once('timeout', () => end(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} s`))))
  })
}
