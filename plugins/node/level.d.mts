export * from './level.js'
