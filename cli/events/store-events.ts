import type { KubeObject, ResourceRef } from '#contracts'
import { openEventStore, type Verb } from '#events'
import type { Config } from '#host/config'
import { createLogger } from '#host/logging'
import { openJetStream, prefixOf } from '#host/nats'

/** Stores events as the bridge does: an older version never replaces a newer one. Returns the result for each event. */
export async function storeEvents(
  settings: Config,
  cluster: string,
  published: readonly { ref: ResourceRef; verb: Verb; object: KubeObject }[],
): Promise<string[]> {
  await using js = await openJetStream(settings, 'publish')
  const log = await createLogger(settings)
  const referenceOnly = settings.FAIRLEAD_REFERENCE_ONLY
  const events = await openEventStore(js, { ...prefixOf(settings), cluster, referenceOnly, log })
  const said: string[] = []
  for (const { ref, verb, object } of published) {
    const { outcome, sequence } = await events.put(ref, verb, object)
    said.push(`${SAID[outcome]} in ${events.stream} at ${sequence}`)
  }
  return said
}

const SAID = {
  stored: 'stored',
  present: 'was there already',
  newer: 'not stored, a newer version is',
  buried: 'not stored, but buried',
} as const
