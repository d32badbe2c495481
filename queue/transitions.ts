import { absorb } from './absorb.ts'
import { finish } from './finish.ts'
import { retry, withdraw } from './intervene.ts'
import { rearm } from './rearm.ts'
import { renew } from './renew.ts'
import { take } from './take.ts'
import { alarm, enqueue, revive } from './tokens.ts'

/**
 * The whole protocol: TAKE (with STEAL, MARK and ACK), ABSORB, RENEW, FINISH, ENQUEUE, the janitor's repairs, sleeping
 * timers, and commands of users.
 */
export const transitions = { enqueue, take, absorb, renew, finish, revive, alarm, rearm, retry, withdraw } as const
