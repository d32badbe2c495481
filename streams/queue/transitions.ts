import { finish } from './finish.ts'
import { retry, withdraw } from './intervene.ts'
import { renew, take } from './take.ts'
import { absorb, alarm, enqueue, rearm, revive } from './tokens.ts'

/**
 * The whole protocol: TAKE (with STEAL, MARK and ACK), ABSORB, RENEW, FINISH, ENQUEUE, the janitor's repairs, sleeping
 * timers, and commands of users.
 */
export const transitions = { enqueue, take, absorb, renew, finish, revive, alarm, rearm, retry, withdraw } as const
