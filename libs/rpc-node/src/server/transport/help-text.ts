import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { allowsGet } from '../messages/plain-requests.js';

/**
 * Returns the text for people who open the address of the API: how to call, and the paths.
 * @param origin - Address of the server in the examples, such as `http://127.0.0.1:8080`.
 * @param refusal - Present for a client that may not see the RPCs: what is missing.
 */
export function renderHelp(
  handlers: readonly UniversalHandler[],
  origin: string,
  refusal?: string,
): string {
  if (refusal !== undefined) return [TITLE, '', `${refusal}.`, '', DOCUMENTATION, ''].join('\n');
  const secure = origin.startsWith('https:');
  const credentials = secure ? ' --cacert ca.crt -H "authorization: Bearer $TOKEN"' : '';
  const curl = `curl${credentials}`;
  const buf = `buf curl${secure ? credentials : ' --http2-prior-knowledge'}`;
  const read = handlers.find(
    ({ method, requestPath }) =>
      method.methodKind === 'unary' && allowsGet(method) && /\/(List|Get)/.test(requestPath),
  );
  const stream = handlers.find(
    ({ method }) => method.methodKind === 'server_streaming' && allowsGet(method),
  );
  const json = "-H 'content-type: application/json' -d '{}'";
  return [
    TITLE,
    ...(read === undefined
      ? []
      : [
          '',
          'A call with curl; RPCs marked GET also answer a GET:',
          `  ${curl} ${origin}${read.requestPath} ${json}`,
          `  ${curl} '${origin}${read.requestPath}?encoding=json&message=%7B%7D'`,
        ]),
    ...(stream === undefined
      ? []
      : [
          '',
          'A stream with curl, one JSON message in each line; or accept: text/event-stream:',
          `  ${curl} -N ${origin}${stream.requestPath} -H 'accept: application/x-ndjson' ${json}`,
        ]),
    '',
    'The server has reflection; list the RPCs and call with gRPC:',
    `  ${buf} --list-methods ${origin}`,
    ...(read === undefined
      ? []
      : [`  ${buf} --protocol grpc -d '{}' ${origin}${read.requestPath}`]),
    '',
    DOCUMENTATION,
    'Health, readiness and metrics are on another port: /health, /ready, /metrics (default 8081).',
    '',
    'RPCs:',
    ...handlers.map(({ requestPath, method }) => `  ${requestPath}${describeMethod(method)}`),
    '',
  ].join('\n');
}

const TITLE = 'This is a Cloudless API: Connect, gRPC, gRPC-Web and plain JSON on one port.';
const DOCUMENTATION = 'Documentation: README.md and docs/operating in the source of Cloudless.';

function describeMethod(method: UniversalHandler['method']): string {
  const notes = [
    ...(allowsGet(method) ? ['GET'] : []),
    ...(method.methodKind === 'server_streaming' ? ['stream'] : []),
    ...(method.methodKind === 'bidi_streaming' ? ['stream in both directions'] : []),
  ];
  return notes.length === 0 ? '' : `  (${notes.join(', ')})`;
}
