import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import type { ErrorReason } from '@cloudless/base';
import { toConnectError } from '@cloudless/api';
import { describeCallFailure } from './call-failure.js';
import { ExitCode } from './failure.js';

const NOW_MS = Date.UTC(2026, 0, 1);
const SERVER = 'https://cluster.example:8443';
const target = { server: SERVER, configPath: '/home/u/config.yaml', namespace: 'bank' };

/** Describes an error that the coordinator has answered with. */
function describeAnswer(
  reason: ErrorReason,
  message: string,
  metadata: Readonly<Record<string, string>> = {},
): { readonly exitCode: number; readonly lines: readonly string[] } {
  const error = toConnectError(new CloudlessError(reason, message, { metadata }));
  const { exitCode, message: text } = describeCallFailure(error, target, NOW_MS);
  return { exitCode, lines: text.split('\n') };
}

describe('a failure of this machine', () => {
  it('names the command that logs in again for a damaged identity', () => {
    const cause = new CloudlessError(
      'CERTIFICATE_INVALID',
      'the private key and the certificate of this client do not fit together',
    );
    const error = new ConnectError('x', Code.Internal, undefined, undefined, cause);
    expect(describeCallFailure(error, target, NOW_MS)).toMatchObject({
      exitCode: ExitCode.unavailable,
      message: `the private key and the certificate of this client do not fit together; log in again with: cloudlessctl login ${SERVER}`,
    });
  });
});

describe('a refusal of the coordinator', () => {
  const LOGIN = `Log in with a valid token: cloudlessctl login ${SERVER}`;

  it.each<{ reason: ErrorReason; message: string }>([
    { reason: 'UNAUTHENTICATED', message: 'the call has no identity' },
    { reason: 'INVALID_TOKEN', message: 'the token is not valid' },
    { reason: 'CREDENTIAL_REVOKED', message: 'the certificate of user/ada was revoked' },
    { reason: 'CREDENTIAL_REVOKED', message: 'the user "ada" does not exist' },
    { reason: 'CERTIFICATE_INVALID', message: 'the certificate is of another authority' },
  ])('for $reason names the command that logs in', ({ reason, message }) => {
    expect(describeAnswer(reason, message)).toEqual({
      exitCode: ExitCode.error,
      lines: [`${message} (UNAUTHENTICATED)`, LOGIN],
    });
  });

  it('names the command that logs in for an expired certificate when the clocks agree', () => {
    const metadata = { serverTime: '2026-01-01T00:00:02Z', notAfter: '2025-12-31T00:00:00Z' };
    expect(describeAnswer('CERTIFICATE_EXPIRED', 'expired', metadata).lines).toEqual([
      'expired (UNAUTHENTICATED)',
      LOGIN,
    ]);
  });

  it.each<{ reason: ErrorReason; serverTime: string; text: string }>([
    {
      reason: 'CERTIFICATE_NOT_YET_VALID',
      serverTime: '2025-12-31T23:50:00Z',
      text: 'The clock of this machine shows 2026-01-01T00:00:00Z, the clock of the coordinator 2025-12-31T23:50:00Z: this machine is 10m ahead of the coordinator. Set the clock that is wrong, and try again',
    },
    {
      reason: 'CERTIFICATE_EXPIRED',
      serverTime: '2026-01-09T00:00:00Z',
      text: 'The clock of this machine shows 2026-01-01T00:00:00Z, the clock of the coordinator 2026-01-09T00:00:00Z: this machine is 8d behind the coordinator. Set the clock that is wrong, and try again',
    },
  ])('for $reason compares the clocks when they differ', ({ reason, serverTime, text }) => {
    expect(describeAnswer(reason, 'refused', { serverTime }).lines).toEqual([
      'refused (UNAUTHENTICATED)',
      text,
    ]);
  });

  it.each<{ where: Record<string, string>; scope: string }>([
    { where: { namespace: 'shop' }, scope: '-n shop' },
    { where: { namespace: '' }, scope: '--cluster' },
    { where: {}, scope: '-n bank' },
  ])('names the command that grants the role for $scope', ({ where, scope }) => {
    const metadata = { principal: 'user/ada', rpc: 'ScaleWorkload', role: 'operator', ...where };
    expect(
      describeAnswer('PERMISSION_DENIED', 'user/ada does not have the role', metadata),
    ).toEqual({
      exitCode: ExitCode.error,
      lines: [
        'user/ada does not have the role (PERMISSION_DENIED)',
        `An administrator grants the role with: cloudlessctl user grant ada operator ${scope}`,
      ],
    });
  });

  it('adds nothing to a denial that no role would change', () => {
    const metadata = { principal: 'node/web1', rpc: 'DeleteWorkload' };
    expect(describeAnswer('PERMISSION_DENIED', 'not for nodes', metadata).lines).toEqual([
      'not for nodes (PERMISSION_DENIED)',
    ]);
  });
});
