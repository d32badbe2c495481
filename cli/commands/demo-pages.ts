/** Printed while kube-apiserver, etcd and nats-server are built. At most 78 columns and, with the progress, 24 lines. */
export const firstPage = `
Fairlead needs a Kubernetes API server, etcd and nats-server. The first start
builds them from source, and every later start takes seconds. If you have a
cluster, press Ctrl-C: KUBECONFIG=~/.kube/config npm run demo

Meanwhile: an operator is one function. The demo runs this one, shortened:

    reconcile({ object: { spec, status }, owned, now }) {
      const due = new Date(spec.schedule)
      if (now < due) return { status: { phase: 'PENDING' }, requeueAt: due }
      if (isDone(owned(Pod))) return { status: { phase: 'DONE' } }
      return { apply: [podFor(spec)], status: { phase: 'RUNNING' } }
    }

It has no client, and it does not wait. It returns what should exist, and when
to call it again. Fairlead watches the cluster, queues the object in NATS
JetStream, calls the function, writes the result and keeps the timer. All of
this is stored: after kill -9 of any process, the run is repeated.
`

/** Printed while a node is built, below the first timeline. */
export const nextPage = `
What you have seen, line by line:

    event seen    the bridge has turned a change of the cluster into an event
    key queued    the object waits in JetStream: once, however often it changes
    run started   one worker holds the object, and has called the function
    written       the API server has answered to the write of the result
    timer armed   JetStream will deliver a message at that time

The demo itself has ended that pod. Now it builds kubelet, containerd and runc,
once, and then shows the same with a container. Ctrl-C ends the demo, and the
next start goes on with what is built. Meanwhile, in another terminal:

    npx fairlead new ../my-operator       then read docs/tutorial.md
`
