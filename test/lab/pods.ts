/** A pod of one container, as an unmodified manifest would have it. */
export function pod(name: string, container: object, spec: object = {}): object {
  const containers = [{ name: 'main', image: 'busybox', imagePullPolicy: 'Always', ...container }]
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, labels: { app: name } }, spec: { ...spec, containers } }
}

/** In a container: what to run instead of the image's command. */
export const sh = (command: string): object => ({ command: ['sh', '-c', command] })
export const ONCE = { restartPolicy: 'Never' }
