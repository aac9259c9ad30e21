import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ManualClock } from '@cloudless/base/testing';
import {
  CertificateAuthorityRotation_Phase as Phase,
  CertificateAuthoritySchema,
} from '@cloudless/api';
import type { CertificateAuthority, RotateCertificateAuthorityRequest } from '@cloudless/api';
import { NOW_MS, runCli } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const YEAR_MS = 365 * 86_400_000;

/** Creates an authority in a phase of its rotation. */
function anAuthority(
  phase: Phase,
  waitingNodes: readonly string[] = [],
  waitingUsers: readonly string[] = [],
): CertificateAuthority {
  return create(CertificateAuthoritySchema, {
    trustDomain: 'cloudless',
    trustBundle: '-----BEGIN CERTIFICATE-----\n',
    trustBundleGeneration: 2n,
    roots: [
      { generation: 1, sha256: 'ab'.repeat(32), notAfter: timestampFromMs(NOW_MS + 9 * YEAR_MS) },
      {
        generation: 2,
        sha256: 'cd'.repeat(32),
        notAfter: timestampFromMs(NOW_MS + 10 * YEAR_MS),
        issues: phase !== Phase.DISTRIBUTING,
      },
    ],
    rotation: {
      phase,
      startedAt: timestampFromMs(NOW_MS),
      waitingNodes: [...waitingNodes],
      waitingNodeCount: waitingNodes.length,
      waitingUsers: [...waitingUsers],
      completedNodeCount: 3 - waitingNodes.length,
    },
  });
}

describe('cloudlessctl admin ca', () => {
  it('prints only the trust bundle with --pem', async () => {
    const identities = { getCertificateAuthority: () => anAuthority(Phase.COMPLETED) };
    expect(await runCli(['admin', 'ca', '--pem'], { identities })).toMatchObject({
      exitCode: 0,
      stdout: '-----BEGIN CERTIFICATE-----\n',
      stderr: '',
    });
  });
});

const ADVICE =
  'tokens from before this rotation name only the old root: after the rotation, their holders do not trust the coordinator any more. Tokens that are created from now on name both roots. While the rotation runs, replace\n' +
  '  join tokens:  cloudlessctl token create, cloudlessctl node join-command\n' +
  '  user tokens:  cloudlessctl user token create USER\n' +
  '  CA files:     cloudlessctl admin ca --pem > ca.crt\n' +
  'the coordinator writes its files admin.credential and join-command again\n';

describe('cloudlessctl admin rotate-ca', () => {
  it('starts a rotation and names the command that shows its progress', async () => {
    const identities = {
      rotateCertificateAuthority: () => anAuthority(Phase.DISTRIBUTING, ['web1', 'web2'], ['ada']),
    };
    const { exitCode, stdout, stderr } = await runCli(['admin', 'rotate-ca'], { identities });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: `${ADVICE}show the progress again with: cloudlessctl admin ca\n`,
    });
    expect(stdout).toContain(
      'Rotation:      phase 1 of 2, the new root is distributed; 1 of 3 nodes; waiting for nodes web1, web2; waiting for users ada\n',
    );
  });

  it('prints a line for each change with --wait until the rotation is complete', async () => {
    const clock = new ManualClock(NOW_MS);
    const states = [
      anAuthority(Phase.DISTRIBUTING, ['web1']),
      anAuthority(Phase.REISSUING, ['web1', 'web2']),
      anAuthority(Phase.COMPLETED),
    ];
    const identities = {
      rotateCertificateAuthority: () => anAuthority(Phase.DISTRIBUTING, ['web1']),
      getCertificateAuthority: () => states.shift() ?? anAuthority(Phase.COMPLETED),
    };
    const running = runCli(['admin', 'rotate-ca', '--wait'], { identities, clock });
    let isDone = false;
    void running.finally(() => (isDone = true));
    while (!isDone) {
      await clock.advance(1_000);
    }
    const { exitCode, stderr } = await running;
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr:
        `${ADVICE}` +
        'rotation: phase 1 of 2, the new root is distributed; 2 of 3 nodes; waiting for nodes web1\n' +
        'rotation: phase 2 of 2, certificates are issued by the new root; 1 of 3 nodes; waiting for nodes web1, web2\n' +
        'rotation: complete, only the new root is trusted\n',
    });
  });

  it.each([
    { name: 'asks for no other rotation within 24 hours', args: [], windowSeconds: 86_400n },
    { name: 'asks for another rotation with --again', args: ['--again'], windowSeconds: undefined },
  ])('$name', async ({ args, windowSeconds }) => {
    const windows: unknown[] = [];
    const identities = {
      rotateCertificateAuthority: ({
        unlessCompletedWithin,
      }: RotateCertificateAuthorityRequest) => {
        windows.push(unlessCompletedWithin?.seconds);
        return anAuthority(Phase.DISTRIBUTING);
      },
    };
    await runCli(['admin', 'rotate-ca', ...args], { identities });
    expect(windows).toEqual([windowSeconds]);
  });

  it('begins no other rotation when it is repeated after the end, and says how to', async () => {
    const identities = { rotateCertificateAuthority: () => anAuthority(Phase.COMPLETED) };
    const { exitCode, stdout, stderr } = await runCli(['admin', 'rotate-ca', '--wait'], {
      identities,
    });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr:
        'the last rotation ended within 24 hours, so no other one has begun; to begin another one: cloudlessctl admin rotate-ca --again\n' +
        'rotation: complete, only the new root is trusted\n',
    });
    expect(stdout).toContain('Rotation:      complete, only the new root is trusted\n');
  });

  it.each([
    { name: 'without a terminal', options: {}, exitCode: 9, skips: 0 },
    {
      name: 'when the user declines',
      options: anInteractiveTerminal('n\n'),
      exitCode: 9,
      skips: 0,
    },
    {
      name: 'when the user confirms',
      options: anInteractiveTerminal('y\n'),
      exitCode: 0,
      skips: 1,
    },
  ])('skips the wait $name: $skips times', async ({ options, exitCode, skips }) => {
    let count = 0;
    const identities = {
      getCertificateAuthority: () => anAuthority(Phase.REISSUING, ['web1'], ['ada']),
      skipCertificateAuthorityWait: () => {
        count += 1;
        return anAuthority(Phase.COMPLETED);
      },
    };
    const result = await runCli(['admin', 'rotate-ca', '--skip-wait'], { identities, ...options });
    expect({ exitCode: result.exitCode, count }).toEqual({ exitCode, count: skips });
    expect(result.stderr).toContain(
      '1 node and 1 user have not completed the phase. After the last phase, such a node must join again and such a user log in again.',
    );
  });
});
