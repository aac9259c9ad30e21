// The thread of the benchmark `threads`.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { AgentMessageSchema, decodeMessage } from '@cloudless/api';

const { port, answered } = workerData as {
  readonly port: MessagePort;
  /** Number of answers. */
  readonly answered: Int32Array;
};
port.on('message', ({ kind, bytes }: { kind: 'decode' | 'confirm'; bytes: Uint8Array }) => {
  port.postMessage(kind === 'decode' ? decodeMessage(AgentMessageSchema, bytes) : 1n);
  Atomics.add(answered, 0, 1);
  Atomics.notify(answered, 0);
});
parentPort?.postMessage('ready');
