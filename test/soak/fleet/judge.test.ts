import { expect, it } from 'vitest'
import { type Found, wrongIn } from './judge.ts'

const DUE = 10_000
const at = { name: 'at0-1', due: DUE, phase: 'DONE' }
const pod = { owner: 'at0-1', uid: 'p1', createdAt: DUE, isLost: false }
const deployment = { owner: 'memcached1-0', uid: 'd1', replicas: 3 }

const clean: Found = {
  ats: [at, { name: 'at0-2', due: undefined, phase: 'PENDING' }],
  pods: [pod],
  memcacheds: [{ name: 'memcached1-0', size: 3 }],
  deployments: [deployment],
  before: ['d1'],
  unfollowed: [],
}

it('finds nothing in a fleet of which each At that was due has one pod, and each Deployment follows', () => {
  expect(wrongIn(clean)).toEqual([])
})

it.each<[wrong: string, found: Partial<Found>]>([
  ['at0-1 has had 2 pods instead of 1', { pods: [pod, { ...pod, uid: 'p2' }] }],
  ['at0-1 has had 0 pods instead of 1', { pods: [] }],
  ['at0-1 is RUNNING instead of DONE', { ats: [{ ...at, phase: 'RUNNING' }] }],
  ['the pod of at0-1 was created 1000 ms early', { pods: [{ ...pod, createdAt: DUE - 1000 }] }],
  ['at0-2 has had 1 pods instead of 0', { pods: [pod, { ...pod, owner: 'at0-2' }] }],
  ['pod p2 belongs to at0-3, which is no At', { pods: [pod, { ...pod, owner: 'at0-3', uid: 'p2' }] }],
  ['pod p1 of at0-1 was deleted', { pods: [{ ...pod, isLost: true }] }],
  ['memcached1-0 has the size 3, and Deployments of [2]', { deployments: [{ ...deployment, replicas: 2 }] }],
  ['Deployment d1 was deleted', { deployments: [{ ...deployment, uid: 'd2' }] }],
  ['nothing has followed an edit of at0-1', { unfollowed: ['at0-1'] }],
])('says: %s', (wrong, found) => {
  expect(wrongIn({ ...clean, ...found })).toEqual([wrong])
})
