import { inject } from 'vitest'
import { type Cluster, openCluster } from '#lab'
import { startTestNats } from './servers.ts'

/**
 * `await using cluster = await borrowCluster()`: as startTestCluster(), but other files use the same API server before and
 * after. At the end of the block, all objects are removed. The file may restart the API server. Its nats-server is its own.
 */
export async function borrowCluster({ nats = false } = {}): Promise<Cluster & AsyncDisposable> {
  const [{ dir }, own] = await Promise.all([ask<{ dir: string }>('/clusters/lend'), nats ? startTestNats() : undefined])
  const stop = async () => {
    await own?.stop()
    await ask(`/clusters/take-back?${new URLSearchParams({ dir })}`)
  }
  return { ...openCluster(dir), nats: own, stop, [Symbol.asyncDispose]: stop }
}

async function ask<Answer>(path: string): Promise<Answer> {
  const answer = await fetch(new URL(path, inject('sharedServers')))
  if (!answer.ok) throw new Error(await answer.text())
  return (await answer.json()) as Answer
}
