/** Runs calls that may never return in a thread, so that their process can still end; see isolation.ts. */
import { setTimeout as sleep } from 'node:timers/promises'
import { parentPort } from 'node:worker_threads'
import type { RunLog } from '#contracts'
import { adapterOf, adapters } from '#functions'
import { toInvoke } from '#sdk'
import { loadFunctions, namableFunctions } from '../functions.ts'
import { COMES_TO_REST_MS, type FromFunction, type Isolated, thrownBy } from './isolation-messages.ts'

const tell = (message: FromFunction) => parentPort?.postMessage(message)

async function call({ id, files, reconciler, input, config, with: given }: Isolated): Promise<void> {
  const logAs = (level: keyof RunLog) => (fields: object, message: string) =>
    tell({ kind: 'log', id, level, fields: JSON.parse(JSON.stringify(fields)) as object, message })
  const log: RunLog = { debug: logAs('debug'), info: logAs('info'), warn: logAs('warn'), error: logAs('error') }
  try {
    const isCalled = ({ name }: { name: string }) => name === reconciler
    const own = (await loadFunctions({ function: files, builtin: [] })).find(isCalled)
    const found =
      own ?? [...(await namableFunctions([])), ...(await adapters([adapterOf(reconciler) ?? '']))].find(isCalled)
    if (found === undefined) throw new Error(`no function ${reconciler} in ${files.join(', ') || 'Fairlead'}`)
    // The signal is never aborted: the end of the run ends the process.
    const { signal } = new AbortController()
    const values = { ...(config && { config }), ...(given && { with: given }) }
    const answer = await toInvoke(found)(input, { signal, log, suspect: true, ...values })
    tell({ kind: 'answer', id, answer, leftBehind: !isAtRest() })
  } catch (error) {
    tell({ kind: 'error', id, error: thrownBy(error) })
  }
}

/** A connection that the function has closed stays active for some more turns of the event loop. */
async function tellRest(id: number): Promise<void> {
  const deadline = performance.now() + COMES_TO_REST_MS
  while (!isAtRest() && performance.now() < deadline) await sleep(1)
  if (isAtRest()) tell({ kind: 'rest', id })
}

parentPort?.on('message', (asked: Isolated) => void call(asked).then(() => tellRest(asked.id)))
const atRest = process.getActiveResourcesInfo().length
const isAtRest = (): boolean => process.getActiveResourcesInfo().length <= atRest
