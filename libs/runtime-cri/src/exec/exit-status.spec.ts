import { describe, expect, it } from '@jest/globals';
import { parseExitCode } from './exit-status.js';

describe('parseExitCode', () => {
  it.each([
    { text: '{"metadata":{},"status":"Success"}', exitCode: 0 },
    {
      text: '{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated","details":{"causes":[{"reason":"ExitCode","message":"9"}]}}',
      exitCode: 9,
    },
  ])('returns exit code $exitCode for the status $text', ({ text, exitCode }) => {
    expect(parseExitCode(text)).toBe(exitCode);
  });

  it.each([
    { message: 'container is in CONTAINER_EXITED state', kind: 'precondition' },
    { message: 'something broke', kind: 'internal' },
  ])('throws kind $kind with the text of the runtime: $message', ({ message, kind }) => {
    const text = JSON.stringify({ status: 'Failure', reason: 'InternalError', message });
    expect(() => parseExitCode(text)).toThrow(expect.objectContaining({ kind, message }));
  });

  const runc =
    'failed to exec in container: failed to start exec "ab": OCI runtime exec failed: exec failed: unable to start container process';
  it.each([
    {
      expectedText: `${runc}: exec: "nope": executable file not found in $PATH: unknown`,
      exitCode: 127,
      message: 'exec: "nope": executable file not found in $PATH',
    },
    {
      expectedText: `${runc}: exec: "/x": stat /x: no such file or directory: unknown`,
      exitCode: 127,
      message: 'exec: "/x": stat /x: no such file or directory',
    },
    {
      expectedText: `${runc}: exec: "/etc/passwd": permission denied: unknown`,
      exitCode: 126,
      message: 'exec: "/etc/passwd": permission denied',
    },
    {
      expectedText: `${runc}: exec: "/etc": is a directory: unknown`,
      exitCode: 126,
      message: 'exec: "/etc": is a directory',
    },
    {
      expectedText: `${runc}: exec /x: exec format error: unknown`,
      exitCode: 126,
      message: 'exec /x: exec format error',
    },
    {
      expectedText: 'exec: "nope": executable file not found in `$PATH`',
      exitCode: 127,
      message: 'exec: "nope": executable file not found in `$PATH`',
    },
    {
      expectedText: 'crun: executable file `nope` not found in $PATH: No such file or directory',
      exitCode: 127,
      message: 'crun: executable file `nope` not found in $PATH: No such file or directory',
    },
  ])(
    'throws CommandNotStartedError with exit code $exitCode: $message',
    ({ expectedText, exitCode, message }) => {
      const text = JSON.stringify({
        status: 'Failure',
        reason: 'InternalError',
        message: expectedText,
      });
      expect(() => parseExitCode(text)).toThrow(
        expect.objectContaining({ kind: 'invalid', exitCode, message }),
      );
    },
  );

  it.each(['', 'no JSON', '[]', '{"status":"Failure"}'])(
    'throws kind internal for an unknown format: %j',
    (text) => {
      expect(() => parseExitCode(text)).toThrow(expect.objectContaining({ kind: 'internal' }));
    },
  );
});
