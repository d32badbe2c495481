import type { Io, Publish } from '../../../streams/queue/record.ts'
import {
  account,
  acknowledge,
  acknowledgeLater,
  lastRecord,
  nameOf,
  removeToken,
  removeTokenLater,
  store,
} from './server.ts'
import type { Config, Outcome, Process, State } from './state.ts'

/** What may come of an IO. Without a configuration nothing goes wrong. */
export function outcomes(state: State, process: Process | undefined, io: Io, config: Config | undefined): Outcome[] {
  switch (io.do) {
    case 'publish':
      return publishes(state, process, io.message, config)
    case 'readRecord': {
      const record = lastRecord(state)
      const label = `reads the record: ${record ? `${record.generation} of ${record.owner}` : 'none'}`
      return [{ label, state, answer: { kind: 'record', record } }]
    }
    case 'acknowledge':
      return config && isHolding(process) ? acknowledgements(state, process, io.confirmed, config) : []
    case 'removeToken':
      return removals(state, process, io.sequence, config)
    case 'readToken': {
      const present = isHolding(process) && state.tokens[process.lane]?.sequence === process.token
      return [
        { label: `looks for its token: ${present ? 'there' : 'gone'}`, state, answer: { kind: 'token', present } },
      ]
    }
  }
}

type Holding = Extract<Process, { token: number | undefined }> & { token: number }

/** Whether a token was delivered to the process. */
const isHolding = (process: Process | undefined): process is Holding =>
  process !== undefined && 'token' in process && process.token !== undefined

/** Only these phases remember a lost publish; in the others it has the same effect as no request. */
const REMEMBERS_DOUBT = new Set<Process['phase']>(['finishing', 'retrying', 'withdrawing'])

function publishes(
  state: State,
  process: Process | undefined,
  message: Publish,
  config: Config | undefined,
): Outcome[] {
  const name = nameOf(message)
  const completes = completesRun(process)
  const progresses = process?.phase === 'renewing' && process.progressed
  const stored = store(state, message, progresses)
  const applied = stored && account(stored, message, completes)
  const found: Outcome[] = [
    applied
      ? { label: `stores ${name}`, state: applied, answer: { kind: 'stored', sequence: applied.counter } }
      : { label: `conflict: ${name}`, state, answer: { kind: 'conflict' } },
  ]
  if (!config || state.left.faults === 0) return found
  const spend = (from: State) => ({ ...from, left: { ...from.left, faults: from.left.faults - 1 } })
  const answer = { kind: 'unknown' } as const
  if (applied) found.push({ label: `stores ${name}, the answer is lost`, state: spend(applied), answer })
  if (process && REMEMBERS_DOUBT.has(process.phase)) found.push({ label: `loses ${name}`, state: spend(state), answer })
  if (config.delays && state.network.length === 0) {
    const delayed = { ...state, network: [{ message, completes, progresses }] }
    found.push({ label: `delays ${name}`, state: spend(delayed), answer })
  }
  return found
}

function removals(state: State, process: Process | undefined, sequence: number, config: Config | undefined): Outcome[] {
  const without = removeToken(state, sequence, config?.resurrections ?? 0)
  // A withdrawal gives up the keys that were enqueued before it, together with their token.
  const removed = process?.phase === 'withdrawing' && without !== state ? { ...without, covered: true } : without
  const found: Outcome[] = [{ label: `removes token ${sequence}`, state: removed, answer: { kind: 'removed' } }]
  if (!config || state.left.faults === 0) return found
  const left = { ...state.left, faults: state.left.faults - 1 }
  const answer = { kind: 'unknown' } as const
  found.push({ label: `removes token ${sequence}, the answer is lost`, state: { ...removed, left }, answer })
  const later = removeTokenLater(state, sequence)
  if (config.delays && process?.phase === 'taking' && later !== state)
    found.push({ label: `delays the removal of token ${sequence}`, state: { ...later, left }, answer })
  return found
}

/**
 * A run is complete if its finish is stored and it neither failed nor was handed back. A withdrawal by hand counts as
 * completion, since no run is expected afterwards.
 */
const completesRun = (process: Process | undefined): boolean =>
  process?.phase === 'withdrawing' ||
  (process?.phase === 'finishing' && process.fresh && !['error', 'handback'].includes(process.ending.kind))

function acknowledgements(state: State, { lane, token }: Holding, confirmed: boolean, config: Config): Outcome[] {
  const later = acknowledgeLater(state, lane, token)
  const name = `token ${lane} ${token}`
  if (!confirmed)
    return [{ label: `acknowledges ${name} without waiting`, state: later, answer: { kind: 'acknowledged' } }]
  const found: Outcome[] = [
    {
      label: `acknowledges ${name}, confirmed`,
      state: acknowledge(state, lane, token, config),
      answer: { kind: 'acknowledged' },
    },
  ]
  if (config.delays && state.left.faults > 0 && later !== state) {
    const left = { ...state.left, faults: state.left.faults - 1 }
    found.push({
      label: `delays the acknowledgement of ${name}`,
      state: { ...later, left },
      answer: { kind: 'unknown' },
    })
  }
  return found
}
