// Calls an API from pages of several origins, with the fetch of happy-dom, which enforces CORS as
// browsers do: it sends preflights and hides responses that the server does not allow. Prints the
// results as JSON.
// Arguments: URL of the API, then the origins of the pages.
import { Window } from 'happy-dom';

const [url, ...origins] = process.argv.slice(2);
const service = `${url}/cloudless.api.CoordinatorService`;
const post = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: '{"name":"nope"}',
};

/** Runs a request of a page. */
async function attempt(request) {
  try {
    const response = await request;
    return { status: response.status, body: await response.text() };
  } catch (reason) {
    return { error: String(reason?.message ?? reason) };
  }
}

const results = {};
for (const origin of origins) {
  const window = new Window({ url: `${origin}/` });
  results[origin] = {
    post: await attempt(window.fetch(`${service}/GetWorkload`, post)),
    get: await attempt(window.fetch(`${service}/ListNodes?encoding=json&message=%7B%7D`)),
  };
  await window.happyDOM.close();
}
process.stdout.write(JSON.stringify(results));
