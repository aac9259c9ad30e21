// `npm start`: installs what is missing, builds, and runs a cluster on this machine. `npm start --
// --demo` shows it all and ends. Wrong flags and `--help` need no packages.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { formatHelp, parseFlags } from '../apps/dev-cluster/src/flags.mjs';
import { root, setup } from './setup.mjs';

const flags = process.argv.slice(2);
const parsed = parseFlags(flags);
if (parsed.kind === 'run') await start();
else if (parsed.kind === 'help') process.stdout.write(formatHelp());
else if (parsed.kind === 'version')
  process.stdout.write(`${JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version}\n`);
else {
  process.stderr.write(`npm start: ${parsed.message}\n`);
  process.exitCode = 2;
}

async function start() {
  setup();
  const { build } = await import('./build.mjs');
  console.log('Building …');
  await build();
  const program = join(root, 'dist/apps/dev-cluster/main.mjs');
  const example = join(root, 'examples/hello.yaml');
  const child = spawn(
    process.execPath,
    ['--enable-source-maps', program, '--example', example, ...flags],
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
}
