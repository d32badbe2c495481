import { Namespace, NetworkPolicy, ResourceQuota, reconciler } from 'fairlead'

/** Each Namespace with the label `team` gets a quota, and admits traffic from its own pods only. */
export const namespaceDefaults = reconciler({
  name: 'namespace-defaults',
  for: Namespace,
  selector: 'team',
  owns: [ResourceQuota, NetworkPolicy],
  reconcile({ object: { metadata } }) {
    const inside = { name: 'from-inside', namespace: metadata.name }
    const pods = metadata.labels?.['size'] === 'large' ? '200' : '20'
    return {
      apply: [
        ResourceQuota.of({ metadata: { name: 'team', namespace: metadata.name }, spec: { hard: { pods } } }),
        NetworkPolicy.of({ metadata: inside, spec: { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] } }),
      ],
    }
  },
})
