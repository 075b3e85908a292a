// The code of the link is in the fragment. It goes into the form, and out of the address and the
// history. The link may also be opened in a tab that shows the form already. The script does not
// send the form: a foreign page could open a link with a code of its own, and the browser would
// then act in another person's name.
'use strict';
{
  const form = document.getElementById('login');
  const fillIn = () => {
    const code = location.hash.slice(1);
    if (!form || !code || code === 'content') return;
    history.replaceState(null, '', location.pathname);
    form.elements.code.value = code;
    form.querySelector('button').focus();
  };
  addEventListener('hashchange', fillIn);
  fillIn();
}
// A second click would send a form again. The browser would not show the first response, which may
// have a new token.
{
  let sentAt = new WeakMap();
  addEventListener('submit', (event) => {
    if (event.target.method !== 'post') return;
    if (event.timeStamp - sentAt.get(event.target) < 15000) event.preventDefault(); // a change takes less time
    else sentAt.set(event.target, event.timeStamp);
  });
  addEventListener('pageshow', () => { sentAt = new WeakMap(); }); // somebody went back to correct a form
}
// A new token is copied by one click. The button is useless without the script, so it is hidden
// until now.
for (const button of document.querySelectorAll('[data-copies]')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copies));
    const isCopied = document.execCommand('copy'); // navigator.clipboard needs TLS
    document.getElementById('copied').textContent = isCopied ? 'Copied.' : 'It is selected: copy it.';
  });
}
// Live figures: the server has parts of the page. A page that cannot be seen does not ask for them.
{
  const at = (name) => document.getElementById('live-' + name);
  const say = (text) => { if (at('state').textContent !== text) at('state').textContent = text; };
  let timer, problems;
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const response = await fetch('/console/live', { redirect: 'error' });
      if (response.status === 401 || response.status === 403) {
        say('Not live: your session has ended. Sign in again.');
        return;
      }
      const parts = await response.json();
      if (at('gateways')) at('gateways').innerHTML = parts.gateways;
      if (at('now')) at('now').innerHTML = parts.now;
      if (parts.problems !== problems) at('problems').innerHTML = problems = parts.problems;
      at('at').textContent = parts.at;
      say('Live.');
    } catch {
      say('Not live: the gateway does not answer.');
    }
    clearTimeout(timer);
    timer = setTimeout(look, 2000);
  };
  if (at('state')) {
    look();
    document.addEventListener('visibilitychange', look);
  }
}
