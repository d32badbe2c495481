import { createServer, type Server } from 'node:net'

/**
 * Below the ports that Linux (32768) and macOS (49152) hand out to outgoing connections, so that a server which is
 * down for a moment finds its port free when it comes back.
 */
const FIRST = 10_000
const LAST = 32_000

/** Different ports that were free a moment ago on every given host. */
export async function freePorts(count: number, hosts: readonly string[] = ['127.0.0.1']): Promise<number[]> {
  const found = new Set<number>()
  for (let attempt = 0; found.size < count; attempt++) {
    if (attempt > 1000) throw new Error(`no ${count} free ports between ${FIRST} and ${LAST} on ${hosts.join(', ')}`)
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST))
    if (!found.has(port) && (await isFree(port, hosts))) found.add(port)
  }
  return [...found]
}

/** The wanted port, or an error that says what to do about a taken one. */
export async function requirePort(port: number, what: string): Promise<number> {
  if (await isFree(port, ['127.0.0.1'])) return port
  throw new Error(`port ${port}, wanted for ${what}, is taken: stop the process that has it, or choose another port`)
}

async function isFree(port: number, hosts: readonly string[]): Promise<boolean> {
  for (const host of hosts) {
    const server = await listen(port, host)
    if (!server) return false
    await new Promise((closed) => server.close(closed))
  }
  return true
}

function listen(port: number, host: string): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen(port, host, () => resolve(server))
  })
}
