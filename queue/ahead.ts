import type { Subscription } from 'nats'
import type { Core } from './core.ts'
import type { Lane } from './record.ts'

/**
 * The keys of one lane that wait behind those that its consumer delivers: all keys that wait now, and all keys that are
 * queued later.
 */
export class Ahead {
  readonly #core: Core
  readonly #of: { reconciler: string; lane: Lane }
  readonly #note: (key: string) => void
  #subscription: Subscription | undefined
  #stopListening: () => void = () => undefined

  constructor(core: Core, of: { reconciler: string; lane: Lane }, note: (key: string) => void) {
    this.#core = core
    this.#of = of
    this.#note = note
  }

  open(): void {
    const { js, names } = this.#core
    const { reconciler, lane } = this.#of
    const callback = (error: unknown, { subject }: { subject: string }) => {
      if (!error) this.#note(names.keyQueued(subject))
    }
    this.#subscription = js.nc.subscribe(names.queued(reconciler, lane), { callback })
    // The server did not announce tokens that were stored while the connection was down.
    this.#stopListening = js.onReconnect(() => void this.#list())
    void this.#list()
  }

  close(): void {
    this.#stopListening()
    this.#subscription?.unsubscribe()
    this.#subscription = undefined
  }

  async #list(): Promise<void> {
    const { js, names, log } = this.#core
    const { reconciler, lane } = this.#of
    const subscription = this.#subscription
    try {
      // From here on, the server announces new tokens.
      await js.nc.flush()
      const { state } = await js.admin.streams.info(names.stream, { subjects_filter: names.tokensOf(reconciler, lane) })
      for (const subject of Object.keys(state.subjects ?? {})) {
        if (this.#subscription !== subscription) return
        const place = names.placeOf(subject)
        if (place?.kind === 'token') this.#note(place.key)
      }
    } catch (error) {
      log.debug({ err: error, reconciler, lane }, 'could not list a long lane: only keys queued from now on have turns')
    }
  }
}
