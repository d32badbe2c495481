import { setTimeout as sleep } from 'node:timers/promises'
import { type Etcd, type EtcdTls, openEtcd } from '#functions/etcd/client'
import type { Operation } from './linearizable.ts'
import type { Outage } from './outages.ts'

/** How a client finds the cluster. */
interface Route {
  name: string
  /** URLs that it may ask now. */
  endpoints: () => readonly string[]
}

interface ClientsOptions {
  /** Each client has one of them, in turn. */
  routes: readonly Route[]
  tls?: EtcdTls
  /** That work side by side. */
  count: number
  /** 0 ≤ x < 1. */
  random: () => number
  signal: AbortSignal
}

export interface Traffic {
  /** Operations, keyed by register. */
  history: Map<string, Operation[]>
  done: number
  failed: number
  outages: Outage[]
}

/** A member that does not answer for so long is left for another one. */
const TIMEOUT_MS = 1000
const PAUSE_MS = 20
/** Registers in use at a time, and for how many operations: histories stay short, and clients meet. */
const REGISTERS = 4
const OPERATIONS_EACH = 200

/** Clients that write and read registers of an etcd until the signal; what they saw. */
export async function useRegisters(options: ClientsOptions): Promise<Traffic> {
  const traffic: Traffic = { history: new Map(), done: 0, failed: 0, outages: [] }
  await Promise.all(Array.from({ length: options.count }, (_, index) => use(index, options, traffic)))
  return traffic
}

async function use(index: number, { routes, tls, random, signal }: ClientsOptions, traffic: Traffic): Promise<void> {
  const client = `c${index}`
  const route = routes[index % routes.length]
  const pick = <T>(among: readonly T[]): T | undefined => among[Math.floor(random() * among.length)]
  let url: string | undefined
  let etcd: Etcd | undefined
  let outage: Omit<Outage, 'endedAt'> | undefined
  for (let number = 0; !signal.aborted; number++) {
    const register = `r${Math.floor((traffic.done + traffic.failed) / OPERATIONS_EACH / REGISTERS) * REGISTERS + Math.floor(random() * REGISTERS)}`
    const operations = traffic.history.get(register) ?? []
    traffic.history.set(register, operations)
    if (etcd === undefined) {
      // As clients of etcd do: what has just failed is asked again only where there is nothing else.
      const all = route?.endpoints() ?? []
      const others = all.filter((one) => one !== url)
      url = pick(others.length > 0 ? others : all)
      etcd = url === undefined ? undefined : openEtcd({ url, tls })
    }
    const calledAt = performance.now()
    const error =
      etcd === undefined
        ? 'there is no endpoint'
        : await operate(etcd, { client, number, register, isWrite: random() < 0.5 }, operations)
    if (error === undefined) {
      traffic.done++
      if (outage !== undefined) traffic.outages.push({ ...outage, endedAt: performance.now() })
      outage = undefined
    } else {
      traffic.failed++
      outage ??= { route: route?.name ?? '', calledAt, failedAt: performance.now(), errors: [] }
      outage.errors.push(error)
      etcd?.close()
      etcd = undefined
    }
    await sleep(PAUSE_MS)
  }
  if (outage !== undefined) traffic.outages.push({ ...outage, endedAt: performance.now() })
  etcd?.close()
}

interface Turn {
  client: string
  number: number
  register: string
  isWrite: boolean
}

/** Why it was not answered. */
async function operate(
  etcd: Etcd,
  { client, number, register, isWrite }: Turn,
  history: Operation[],
): Promise<string | undefined> {
  const key = Buffer.from(register)
  const calledAt = performance.now()
  const write: Operation = { kind: 'write', value: `${client}-${number}`, calledAt }
  if (isWrite) history.push(write)
  try {
    if (isWrite) {
      await etcd.call('put', { key, value: Buffer.from(`${client}-${number}`) }, { timeoutMs: TIMEOUT_MS })
      write.returnedAt = performance.now()
    } else {
      const { kvs } = await etcd.call('range', { key }, { timeoutMs: TIMEOUT_MS })
      const value = kvs[0]?.value.toString() ?? null
      history.push({ kind: 'read', value, calledAt, returnedAt: performance.now() })
    }
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}
