// The code with which a network proxy sends traces, in a bundle of its own: proxies without a receiver
// of traces do not load the code, and the others do not wait for it.
export { startTracing } from '@cloudless/observability';
