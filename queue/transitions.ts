import { finish } from './finish.ts'
import { renew } from './renew.ts'
import { take } from './take.ts'
import { enqueue, revive } from './tokens.ts'

/** The whole protocol: TAKE (with STEAL, MARK and ACK), RENEW, FINISH, ENQUEUE, and the janitor's repair. */
export const transitions = { enqueue, take, renew, finish, revive } as const
