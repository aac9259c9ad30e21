import { get } from 'node:http';
import { connect } from 'node:tls';

/** Time that a probe of an endpoint may take. */
const PROBE_MS = 1_000;

/**
 * Finds out whether an endpoint that cannot be used with the scheme of its URL uses the other one.
 * @returns The scheme that the endpoint uses; undefined when it answers neither.
 */
export async function findScheme(url: string): Promise<'http' | 'https' | undefined> {
  const { hostname, port } = new URL(url);
  if (url.startsWith('http:')) return (await speaksTls(hostname, port)) ? 'https' : undefined;
  return (await speaksPlaintext(hostname, port)) ? 'http' : undefined;
}

function speaksTls(host: string, port: string): Promise<boolean> {
  return new Promise((resolve) => {
    // Sends nothing, so the certificate does not matter.
    const socket = connect({ host, port: Number(port || 443), rejectUnauthorized: false });
    const end = (isTls: boolean): void => {
      socket.destroy();
      resolve(isTls);
    };
    socket.setTimeout(PROBE_MS, () => end(false));
    socket.once('secureConnect', () => end(true));
    socket.once('error', () => end(false));
  });
}

function speaksPlaintext(host: string, port: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get({ host, port: Number(port || 80), path: '/version' }, (response) => {
      response.resume();
      // Node.js and Go answer plaintext on a port with TLS with 400.
      resolve(response.statusCode !== 400);
    });
    request.setTimeout(PROBE_MS, () => request.destroy(new Error('no answer')));
    request.once('error', () => resolve(false));
  });
}
