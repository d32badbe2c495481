export { memcached } from './memcached.ts'
export { Memcached } from './resource.ts'
