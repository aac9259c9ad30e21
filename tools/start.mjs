// `npm start`: installs what is missing, builds, and runs a cluster on this machine. `npm start --
// --demo` shows it all and ends.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { root, setup } from './setup.mjs';

setup();
const { build } = await import('./build.mjs');
console.log('Building …');
await build();

const child = spawn(
  process.execPath,
  [
    '--enable-source-maps',
    join(root, 'dist/apps/dev-cluster/main.mjs'),
    '--example',
    join(root, 'examples/hello.yaml'),
    ...process.argv.slice(2),
  ],
  {
    cwd: root,
    // The cluster ends when the channel closes, also when we are killed.
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  },
);
// Ctrl-C reaches the whole foreground group; the cluster shuts down in good order and we wait for
// it.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => signal !== 'SIGINT' && child.kill(signal));
child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 130)));
