import { mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'

/**
 * The range is below the ephemeral ports of Linux (from 32768) and macOS (from 49152), so that the port of a stopped
 * server is still free at its restart.
 */
const FIRST = 10_000
const LAST = 32_000
/** `fetch` connects to none of its "bad ports" (https://fetch.spec.whatwg.org/#port-blocking). One is in the range. */
const REFUSED_BY_FETCH = 10_080

/**
 * Returns different ports that are free on all given hosts. Other calls do not return them until a server had time to
 * bind them.
 */
export async function freePorts(count: number, hosts: readonly string[] = ['127.0.0.1']): Promise<number[]> {
  const reservations = openReservations()
  const found: number[] = []
  for (let attempt = 0; found.length < count; attempt++) {
    if (attempt > 1000) throw new Error(`no ${count} free ports between ${FIRST} and ${LAST} on ${hosts.join(', ')}`)
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST))
    if (port !== REFUSED_BY_FETCH && reservations.take(port) && (await isFree(port, hosts))) found.push(port)
  }
  return found
}

/** Returns the wanted port. Rejects with an error that names the fix if the port is in use. */
export async function requirePort(port: number, what: string): Promise<number> {
  if (await isFree(port, ['127.0.0.1'])) return port
  throw new Error(`port ${port}, wanted for ${what}, is taken: stop the process that has it, or choose another port`)
}

/** Returns the wanted port if it is free, or else undefined. */
export const portIfFree = async (port: number): Promise<number | undefined> =>
  (await isFree(port, ['127.0.0.1'])) ? port : undefined

/** Releases the reservations at the end of a process: its ports are bound by then, or unused. */
export function releasePorts(): void {
  const dir = reservations()
  const isOwn = (file: string) => readFileSync(file, 'utf8') === String(process.pid)
  try {
    for (const name of readdirSync(dir)) if (isOwn(join(dir, name))) rmSync(join(dir, name))
    rmdirSync(dir)
  } catch {
    // Other processes have reservations there, or remove theirs at the same time.
  }
}

/** The time in which a server on a slow machine binds its port. */
const RESERVED_MS = 60_000

/**
 * The folder of reservations: one file for each recently returned port, since several processes may start clusters at
 * the same time.
 */
const reservations = (): string => join(tmpdir(), `fairlead-ports-${userInfo().uid}`)

function openReservations(): { take(port: number): boolean } {
  const dir = reservations()
  for (const name of namesIn(dir)) dropIfOld(join(dir, name))
  return {
    take(port) {
      mkdirSync(dir, { recursive: true, mode: 0o700 })
      try {
        writeFileSync(join(dir, String(port)), String(process.pid), { flag: 'wx' })
        return true
      } catch (error) {
        // ENOENT: another process has just removed the empty folder.
        if (['EEXIST', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
        throw error
      }
    },
  }
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function dropIfOld(file: string): void {
  const stat = statSync(file, { throwIfNoEntry: false })
  if (stat && Date.now() - stat.mtimeMs > RESERVED_MS) rmSync(file, { force: true })
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
