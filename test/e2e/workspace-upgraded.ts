import { type KubeObject, kind, type ReconcileOutcome, type Reconciler } from 'fairlead'
import { Workspace } from '../../docs/examples/workspace/resource.ts'
import { workspace } from '../../docs/examples/workspace/workspace.ts'

export const LimitRange = kind({ group: '', version: 'v1', kind: 'LimitRange', plural: 'limitranges' })

/** The example as its author publishes it later: each Workspace has a LimitRange, too. */
export const upgraded: Reconciler = {
  ...workspace,
  owns: [...workspace.owns, LimitRange],
  async reconcile(run) {
    const outcome = (await workspace.reconcile(run)) as ReconcileOutcome<unknown>
    if (outcome.apply === undefined) return outcome
    const { metadata } = Workspace.parse(run.object as KubeObject)
    const isArchived = outcome.apply.some(({ retain }) => retain === true)
    const limits = LimitRange.of({
      metadata: { name: 'containers', namespace: metadata.name },
      spec: { limits: [{ type: 'Container', defaultRequest: { cpu: '100m' } }] },
    })
    return { ...outcome, apply: [...outcome.apply, isArchived ? { ...limits, retain: true } : limits] }
  },
}
