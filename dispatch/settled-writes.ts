import { keepNewest } from './newest.ts'

const CAPACITY = 20_000

/**
 * The server has said that a write changes nothing at a resourceVersion: it need not be sent again until the object
 * moves. An optimisation only: losing an entry costs one request without effect.
 */
export class SettledWrites {
  readonly #known = new Map<string, string>()

  /** `target` is an object's uid, followed by `/status` for its status. */
  remember(target: string, resourceVersion: string, fingerprint: string): void {
    keepNewest(this.#known, target, `${resourceVersion} ${fingerprint}`, CAPACITY)
  }

  has(target: string, resourceVersion: string | undefined, fingerprint: string): boolean {
    return this.#known.get(target) === `${resourceVersion} ${fingerprint}`
  }
}
