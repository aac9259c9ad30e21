import { describe, expect, it } from '@jest/globals';
import { exitCodeFrom } from './exec-outcome.js';

describe('the end of a command', () => {
  it.each([
    { text: '{"metadata":{},"status":"Success"}', exitCode: 0 },
    {
      text: '{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated","details":{"causes":[{"reason":"ExitCode","message":"9"}]}}',
      exitCode: 9,
    },
  ])('is an exit code: $exitCode', ({ text, exitCode }) => {
    expect(exitCodeFrom(text)).toBe(exitCode);
  });

  it.each([
    { message: 'OCI runtime exec failed: exec: "nope": executable file not found in $PATH: unknown', kind: 'invalid' },
    { message: 'container is in CONTAINER_EXITED state', kind: 'precondition' },
    { message: 'something broke', kind: 'internal' },
  ])('is a failure with the text of the runtime: $message', ({ message, kind }) => {
    const text = JSON.stringify({ status: 'Failure', reason: 'InternalError', message });
    expect(() => exitCodeFrom(text)).toThrow(expect.objectContaining({ kind, message }));
  });

  it.each(['', 'no JSON', '[]', '{"status":"Failure"}'])('is a failure for what nobody knows: %j', (text) => {
    expect(() => exitCodeFrom(text)).toThrow(expect.objectContaining({ kind: 'internal' }));
  });
});
