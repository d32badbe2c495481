import { setTimeout as sleep } from 'node:timers/promises'
import { type Etcd, type EtcdTls, openEtcd } from '#etcd'
import type { Operation } from './linearizable.ts'

interface ClientsOptions {
  /** URLs of the members that clients may ask now. */
  endpoints: () => readonly string[]
  tls?: EtcdTls
  /** That work side by side. */
  count: number
  /** 0 ≤ x < 1. */
  random: () => number
  signal: AbortSignal
}

export interface Traffic {
  /** By register. */
  history: Map<string, Operation[]>
  done: number
  failed: number
  /** For how long clients got no answer at all, in milliseconds: from the first failure to the next success. */
  outagesMs: number[]
}

/** A member that does not answer for so long is left for another one. */
const TIMEOUT_MS = 1000
const PAUSE_MS = 20
/** Registers in use at a time, and for how many operations: histories stay short, and clients meet. */
const REGISTERS = 4
const OPERATIONS_EACH = 200

/** Clients that write and read registers of an etcd until the signal; what they saw. */
export async function useRegisters(options: ClientsOptions): Promise<Traffic> {
  const traffic: Traffic = { history: new Map(), done: 0, failed: 0, outagesMs: [] }
  await Promise.all(Array.from({ length: options.count }, (_, index) => use(`c${index}`, options, traffic)))
  return traffic
}

async function use(
  client: string,
  { endpoints, tls, random, signal }: ClientsOptions,
  traffic: Traffic,
): Promise<void> {
  const pick = <T>(among: readonly T[]): T | undefined => among[Math.floor(random() * among.length)]
  let etcd: Etcd | undefined
  let failingSince: number | undefined
  for (let number = 0; !signal.aborted; number++) {
    const register = `r${Math.floor((traffic.done + traffic.failed) / OPERATIONS_EACH / REGISTERS) * REGISTERS + Math.floor(random() * REGISTERS)}`
    const operations = traffic.history.get(register) ?? []
    traffic.history.set(register, operations)
    const url = pick(endpoints())
    etcd ??= url === undefined ? undefined : openEtcd({ url, tls })
    const calledAt = performance.now()
    if (
      etcd !== undefined &&
      (await operate(etcd, { client, number, register, isWrite: random() < 0.5 }, operations))
    ) {
      traffic.done++
      if (failingSince !== undefined) traffic.outagesMs.push(performance.now() - failingSince)
      failingSince = undefined
    } else {
      traffic.failed++
      failingSince ??= calledAt
      etcd?.close()
      etcd = undefined
    }
    await sleep(PAUSE_MS)
  }
  if (failingSince !== undefined) traffic.outagesMs.push(performance.now() - failingSince)
  etcd?.close()
}

interface Turn {
  client: string
  number: number
  register: string
  isWrite: boolean
}

/** Whether it was answered. */
async function operate(
  etcd: Etcd,
  { client, number, register, isWrite }: Turn,
  history: Operation[],
): Promise<boolean> {
  const key = Buffer.from(register)
  const calledAt = performance.now()
  if (!isWrite) {
    const answer = await etcd.call('range', { key }, { timeoutMs: TIMEOUT_MS }).catch(() => undefined)
    if (answer === undefined) return false
    const value = answer.kvs[0]?.value.toString() ?? null
    history.push({ kind: 'read', value, calledAt, returnedAt: performance.now() })
    return true
  }
  const write: Operation = { kind: 'write', value: `${client}-${number}`, calledAt }
  history.push(write)
  try {
    await etcd.call('put', { key, value: Buffer.from(`${client}-${number}`) }, { timeoutMs: TIMEOUT_MS })
    write.returnedAt = performance.now()
    return true
  } catch {
    return false
  }
}
