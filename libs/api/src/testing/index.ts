export { aSpec, aWorkload } from './builders.js';
