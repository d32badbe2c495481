import type { WatchEvent } from './types.ts'

/** The bookmark that ends the present objects of a watch with sendInitialEvents. */
export const endsInitialEvents = (event: WatchEvent<unknown>): boolean =>
  event.type === 'BOOKMARK' && event.object.metadata.annotations?.['k8s.io/initial-events-end'] === 'true'
