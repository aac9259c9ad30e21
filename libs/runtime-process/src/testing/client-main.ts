import { silentLog, toContainerId } from '@cloudless/base';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { openProcessRuntime } from '../index.js';

/**
 * Main program of a client that a test kills. `client-main <directory> <container id> <script>
 * <supervisor command…>` starts a container, writes `started`, and follows the log of the
 * container.
 */
const [directory = '', containerId = '', script = '', ...supervisorCommand] = process.argv.slice(2);
const runtime = await openProcessRuntime({
  directory,
  supervisorCommand,
  clock: systemClock,
  random: systemRandom,
  log: silentLog,
});
await runtime.start({
  containerId: toContainerId(containerId),
  labels: {},
  command: ['/bin/sh', '-c', script],
  args: [],
  env: {},
  ports: [],
  limits: {},
});
process.stdout.write('started\n');
for await (const line of runtime.logs(
  toContainerId(containerId),
  { follow: true },
  new AbortController().signal,
)) {
  process.stdout.write(`${Buffer.from(line.text).toString()}\n`);
}
