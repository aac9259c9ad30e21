import { spawnSync } from 'node:child_process';
import { describe, expect, it } from '@jest/globals';

/** Why etcd cannot be started on this machine; undefined when it can. */
function whyNoEtcd(): string | undefined {
  const { status } = spawnSync('etcd', ['--version'], { stdio: 'ignore' });
  return status === 0 ? undefined : 'there is no etcd: apt-get install etcd-server etcd-client';
}

/**
 * Same as `describe`, for tests that start etcd. Without etcd the tests are skipped, and the title
 * has the reason. With `CLOUDLESS_ETCD=required`, as in CI, a test fails instead.
 */
export function describeEtcd(name: string, body: () => void): void {
  const whyNot = whyNoEtcd();
  if (whyNot === undefined) describe(name, body);
  else if (process.env['CLOUDLESS_ETCD'] !== 'required') describe.skip(`${name} (${whyNot})`, body);
  else {
    describe(name, () => {
      it('has etcd', () => expect(whyNot).toBeUndefined());
    });
  }
}
