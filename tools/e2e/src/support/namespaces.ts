import { spawnSync } from 'node:child_process';

/** Returns why programs cannot run in new namespaces on this machine; undefined when they can. */
export function findNamespaceProblem(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux has namespaces';
  if (process.getuid?.() !== 0) return 'namespaces need root';
  const flags = ['--net', '--pid', '--fork', '--mount-proc', '--kill-child'];
  const { status, stderr, error } = spawnSync(
    'unshare',
    [...flags, 'ip', 'link', 'set', 'lo', 'up'],
    { encoding: 'utf8' },
  );
  return status === 0 ? undefined : `unshare does not work: ${(error?.message ?? stderr).trim()}`;
}
