export { website } from './website.ts'
